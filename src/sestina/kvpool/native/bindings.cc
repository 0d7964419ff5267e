// Thin binding: addresses and sizes in, numbers out. Callers (kvpool/arena.py) own the buffers and hold the pool's
// lock.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <system_error>

#include "arena.h"
#include "checksum.h"
#include "near.h"
#include "tally.h"

namespace py = pybind11;
using namespace sestina::kvpool;
using Address = std::uintptr_t;
using Layout = std::tuple<Address, int64_t, int64_t, int64_t, int64_t>;

namespace {

Cells cells(const Layout& layout) {
  const auto& [base, page_stride, part_stride, parts, part_bytes] = layout;
  return {reinterpret_cast<uint8_t*>(base), page_stride, part_stride, parts, part_bytes};
}

uint64_t sum_of_bytes(const py::buffer& content) {
  const py::buffer_info info = content.request();
  return checksum(static_cast<const uint8_t*>(info.ptr), static_cast<size_t>(info.size * info.itemsize));
}

std::vector<uint64_t> sum_of_pages(Address base, int64_t page_bytes, int64_t count) {
  std::vector<uint64_t> sums;
  for (int64_t page = 0; page < count; ++page)
    sums.push_back(
        checksum(reinterpret_cast<const uint8_t*>(base) + page * page_bytes, static_cast<size_t>(page_bytes)));
  return sums;
}

Text text_of(const py::buffer_info& info) {
  if (info.itemsize != 4 || info.ndim != 1 || info.strides[0] != 4)
    throw py::value_error("tokens are int32, in one piece");
  return {static_cast<const uint8_t*>(info.ptr), info.size};
}

int keep_near(Arena& self, Tally& tally, int64_t generation, int64_t limit_bytes, int64_t num_bytes,
              const std::tuple<int64_t, int64_t, int64_t>& key, const py::buffer& tokens, const Layout& layout,
              const std::vector<int64_t>& pages, double used_s) {
  const py::buffer_info info = tokens.request();
  const auto& [version, group, sample] = key;
  const Text text = text_of(info);
  const py::gil_scoped_release others;
  return keep(tally, self, {generation, num_bytes}, limit_bytes, {version, group, sample}, text, cells(layout), pages,
              used_s);
}

py::object take_near(Arena& self, Tally& tally, int64_t generation, const std::tuple<int64_t, int64_t, int64_t>& key,
                     uint32_t most_pages) {
  const auto& [version, group, sample] = key;
  Taken taken;
  {
    const py::gil_scoped_release others;
    taken = take(tally, self, generation, {version, group, sample}, most_pages);
  }
  return py::make_tuple(taken.number, taken.num_pages, taken.counted);
}

// Puts an entry into pages and gives its blocks back.
py::object put_near(Arena& self, Tally& tally, int64_t generation, int64_t num_bytes, uint32_t number,
                    const py::buffer& known, int64_t page_tokens, const Layout& layout,
                    const std::vector<int64_t>& pages, int64_t skip) {
  const py::buffer_info info = known.request();
  const Text text = text_of(info);
  Put found;
  {
    const py::gil_scoped_release others;
    found = put(self, number, text, page_tokens, cells(layout), pages, skip);
    release(tally, self, number, {generation, num_bytes});
  }
  return py::make_tuple(found.fits, found.num_tokens, found.good_pages, found.num_pages);
}

}  // namespace

PYBIND11_MODULE(_native, m) {
  m.doc() = "Entries of keys and values in a node's shared memory; see native/arena.h and native/index.h.";
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const std::system_error& error) {
      const py::object said = py::make_tuple(error.code().value(), error.what());
      PyErr_SetObject(PyExc_OSError, said.ptr());
    }
  });

  m.def("checksum", &sum_of_bytes);
  m.def("checksums", &sum_of_pages, py::call_guard<py::gil_scoped_release>());

  py::class_<Tally>(m, "Tally")
      .def(py::init<const std::string&>())
      .def("enter", &Tally::enter, py::call_guard<py::gil_scoped_release>())
      .def("leave", &Tally::leave)
      .def("get", [](Tally& self, int word) { return self[static_cast<Tally::Word>(word)]; })
      .def("set", [](Tally& self, int word, int64_t value) { self[static_cast<Tally::Word>(word)] = value; });

  py::class_<Arena>(m, "Arena")
      .def(py::init<const std::string&, const std::string&, uint64_t, uint64_t>())
      .def_property_readonly("page_bytes", [](const Arena& self) { return self.index.page_bytes(); })
      .def("make_ready", &Arena::make_ready, py::call_guard<py::gil_scoped_release>())
      .def("reserve", [](Arena& self, int64_t version, int64_t group, int64_t sample,
                         uint32_t num_pages) { return self.index.reserve({version, group, sample}, num_pages); })
      .def("write",
           [](Arena& self, uint32_t number, const Layout& layout, const std::vector<int64_t>& pages) {
             const py::gil_scoped_release others;
             return self.write(number, cells(layout), pages);
           })
      .def("publish", [](Arena& self, uint32_t number, uint32_t num_tokens, uint64_t digest,
                         double used_s) { self.index.publish(number, num_tokens, digest, used_s); })
      .def("find", [](const Arena& self, int64_t version, int64_t group,
                      int64_t sample) { return self.index.find({version, group, sample}); })
      .def("moves", [](const Arena& self, uint32_t number) { return self.index.entry(number).state == kMoving; })
      .def("set_moving",
           [](Arena& self, uint32_t number, bool moves) { self.index.entry(number).state = moves ? kMoving : kHeld; })
      .def("remove", [](Arena& self, uint32_t number) { self.index.remove(number); })
      .def("free", [](Arena& self, uint32_t number) { self.index.free(number); })
      .def("num_pages", [](const Arena& self, uint32_t number) { return self.index.entry(number).num_pages; })
      .def("serial", [](const Arena& self, uint32_t number) { return self.index.entry(number).serial; })
      .def("text",
           [](const Arena& self, uint32_t number) -> py::object {
             const Entry& entry = self.index.entry(number);
             if (entry.seal != self.index.seal(number)) return py::none();
             return py::make_tuple(entry.num_tokens, entry.num_pages, entry.digest);
           })
      .def("sums", [](const Arena& self, uint32_t number) { return self.index.sums(number); })
      .def("read",
           [](Arena& self, uint32_t number, int64_t skip, const Layout& layout, const std::vector<int64_t>& pages) {
             const py::gil_scoped_release others;
             return self.read(number, skip, cells(layout), pages);
           })
      .def("keep_near", &keep_near)
      .def("take_near", &take_near)
      .def("put_near", &put_near)
      .def("held", [](const Arena& self) {
        py::list found;
        for (const uint32_t number : self.index.held()) {
          const Entry& entry = self.index.entry(number);
          found.append(
              py::make_tuple(entry.key.version, entry.key.group, entry.key.sample, entry.num_pages, entry.used_s));
        }
        return found;
      });
}
