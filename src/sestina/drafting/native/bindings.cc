// Thin binding: numpy arrays are checked for type and shape, the GIL is released, and the index does the rest. Refusals
// become the exceptions of drafting/errors.py.
#include <pybind11/stl.h>

#include "arrays.h"
#include "index.h"
#include "texts.h"

using namespace sestina::drafting;

namespace {

void append(SuffixIndex& index, const Array<int64_t>& handles, const Array<int64_t>& offsets,
            const Array<int64_t>& bounds, const Array<int32_t>& tokens) {
  const int64_t size = handles.size();
  const AppendBatch batch{row(handles, -1, "handles"), row(offsets, size, "offsets"), row(bounds, size + 1, "bounds"),
                          row(tokens, -1, "tokens"),   static_cast<uint32_t>(size),   tokens.size()};
  const py::gil_scoped_release released;
  index.append(batch);
}

void draft(SuffixIndex& index, const Array<int64_t>& handles, const Array<int32_t>& max_tokens, int64_t top_k,
           float min_prob, int64_t own_weight, int64_t min_match, int64_t threads, Array<int64_t>& bounds,
           Array<int32_t>& tokens, Array<int32_t>& parents, Array<float>& probs, Array<float>& scores,
           Array<int32_t>& match_lens) {
  const int64_t size = handles.size();
  const DraftBatch batch{row(handles, -1, "handles"), row(max_tokens, size, "max_tokens"), static_cast<uint32_t>(size),
                         limits(0, top_k, min_prob, own_weight, min_match), at_most(threads, 1, 256, "threads")};
  const int64_t capacity = std::min({tokens.size(), parents.size(), probs.size()});
  const DraftOutput out{room(bounds, size + 1, "bounds"),
                        room(tokens, 0, "tokens"),
                        room(parents, 0, "parents"),
                        room(probs, 0, "probs"),
                        room(scores, size, "scores"),
                        room(match_lens, size, "match_lens"),
                        capacity};
  const py::gil_scoped_release released;
  index.draft(batch, out);
}

py::tuple rehearse(SuffixIndex& index, int64_t handle, const Array<int32_t>& tokens, int64_t max_tokens, int64_t top_k,
                   float min_prob, int64_t own_weight, int64_t min_match) {
  const Limits given = limits(max_tokens, top_k, min_prob, own_weight, min_match);
  const int32_t* text = row(tokens, -1, "tokens");
  Rehearsal done;
  {
    const py::gil_scoped_release released;
    done = index.rehearse(handle, text, tokens.size(), given);
  }
  return py::make_tuple(done.steps, done.drafted);
}

Array<int64_t> time_drafts(SuffixIndex& index, const Array<int64_t>& handles, int64_t max_tokens, int64_t top_k,
                           float min_prob, int64_t own_weight, int64_t min_match) {
  const Limits given = limits(max_tokens, top_k, min_prob, own_weight, min_match);
  std::vector<int64_t> spans;
  {
    const py::gil_scoped_release released;
    spans = index.time_drafts(handles.data(), handles.size(), given);
  }
  return copied(spans);
}

py::tuple fetch(SuffixIndex& index, int64_t group, int64_t cursor) {
  int64_t epoch = 0;
  Slice slice;
  {
    const py::gil_scoped_release released;
    slice = index.fetch(group, cursor, epoch);
  }
  return py::make_tuple(epoch, copied(slice.records), copied(slice.starts), copied(slice.tokens));
}

void replay(SuffixIndex& index, int64_t group, int64_t epoch, int64_t cursor, const Array<uint32_t>& records,
            const Array<int64_t>& starts, const Array<int32_t>& tokens) {
  const py::gil_scoped_release released;
  index.replay(group, epoch, cursor,
               {{records.data(), records.data() + records.size()},
                {starts.data(), starts.data() + starts.size()},
                {tokens.data(), tokens.data() + tokens.size()}});
}

// Columns of a frame, one row after the other.
template <class T>
const T* columns(const Array<int64_t>& array, const char* name) {
  constexpr int64_t width = sizeof(T) / sizeof(int64_t);
  if (array.size() % width == 0) return reinterpret_cast<const T*>(row(array, -1, name));
  throw Failure(Refusal::kOutOfRange, std::string(name) + ": must be rows of " + std::to_string(width));
}

template <class T>
Array<int64_t> flat(const std::vector<T>& rows) {
  const auto* first = reinterpret_cast<const int64_t*>(rows.data());
  return Array<int64_t>(static_cast<py::ssize_t>(rows.size() * sizeof(T) / sizeof(int64_t)), first);
}

Frame frame(const Array<int64_t>& asked, const Array<int64_t>& rows, const Array<int32_t>& tokens) {
  const Frame given{columns<CacheState>(asked, "asked"), static_cast<size_t>(asked.size() * 8) / sizeof(CacheState),
                    columns<Row>(rows, "rows"), static_cast<size_t>(rows.size() * 8) / sizeof(Row), tokens.data()};
  int64_t left = tokens.size();
  for (size_t i = 0; i < given.num_rows; ++i) {
    const Row& one = given.rows[i];
    if (one.offset < 0 || one.length < 1 || one.length > left) {
      throw Failure(Refusal::kOutOfRange, "rows: offsets from 0, lengths from 1, of the tokens given");
    }
    left -= one.length;
  }
  for (size_t i = 0; i < given.num_asked; ++i) {
    if (given.asked[i].cursor < 0) throw Failure(Refusal::kOutOfRange, "asked: cursors from 0");
  }
  return given;
}

py::tuple exchange(Texts& texts, const Array<int64_t>& asked, const Array<int64_t>& rows, const Array<int32_t>& tokens,
                   size_t budget, size_t room) {
  const Frame given = frame(asked, rows, tokens);
  Told told;
  {
    const py::gil_scoped_release released;
    told = texts.exchange(given, budget, room);
  }
  return py::make_tuple(py::make_tuple(told.fetched, flat(told.states), flat(told.rows), copied(told.tokens),
                                       flat(told.receipts), told.unknown, told.full),
                        py::make_tuple(told.gaps, told.conflicts, told.duplicates, told.refused));
}

void raise(const Failure& failure) {
  static const char* const names[] = {"NotFoundError",       "ExistsError",         "OutOfRangeError", "OffsetGapError",
                                      "OffsetConflictError", "BufferTooSmallError", "IndexFullError"};
  const py::object type = py::module_::import("sestina.drafting.errors").attr(names[static_cast<int>(failure.refusal)]);
  PyErr_SetString(type.ptr(), failure.what());
}

}  // namespace

PYBIND11_MODULE(_native, m) {
  m.doc() = "The grouped suffix index; see drafting/index.py.";
  m.attr("MAX_DRAFT_TOKENS") = kMaxDraft;
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Failure& failure) {
      raise(failure);
    }
  });
  const auto released = py::call_guard<py::gil_scoped_release>();
  py::class_<Texts>(m, "Texts")
      .def(py::init<>())
      .def("open", [](Texts& texts, int64_t group, int64_t epoch, double ttl_s, const py::bytes& prompt,
                      double now) { texts.open(group, epoch, ttl_s, prompt, now); })
      .def("drop", &Texts::drop)
      .def("has", [](Texts& texts, int64_t group, double ttl_s, const py::bytes& prompt,
                     double now) { return texts.has(group, ttl_s, prompt, now); })
      .def(
          "touch",
          [](Texts& texts, const Array<int64_t>& asked, const Array<int64_t>& rows, const Array<int32_t>& tokens,
             double now) { texts.touch(frame(asked, rows, tokens), now); },
          py::arg().noconvert(), py::arg().noconvert(), py::arg().noconvert(), py::arg())
      .def("exchange", &exchange, py::arg().noconvert(), py::arg().noconvert(), py::arg().noconvert(), py::arg(),
           py::arg())
      .def("by_use", &Texts::by_use)
      .def("expired", &Texts::expired)
      .def("used_s", &Texts::used_s)
      .def("size", &Texts::size)
      .def("bytes", &Texts::bytes);
  py::class_<SuffixIndex>(m, "SuffixIndex")
      .def(py::init<int64_t, int64_t, int64_t, int64_t>())
      .def(
          "start_group",
          [](SuffixIndex& index, int64_t group, const Array<int32_t>& prompt) {
            const int32_t* tokens = row(prompt, -1, "prompt");
            const py::gil_scoped_release release;
            index.start_group(group, tokens, static_cast<uint32_t>(prompt.size()));
          },
          py::arg(), py::arg().noconvert())
      .def("drop_group", &SuffixIndex::drop_group, released)
      .def("start_request", &SuffixIndex::start_request, released)
      .def("stop_request", &SuffixIndex::stop_request, released)
      .def("find_request", &SuffixIndex::find_request, released)
      .def("append", &append, py::arg().noconvert(), py::arg().noconvert(), py::arg().noconvert(),
           py::arg().noconvert())
      .def("draft", &draft, py::arg().noconvert(), py::arg().noconvert(), py::arg(), py::arg(), py::arg(), py::arg(),
           py::arg(), py::arg().noconvert(), py::arg().noconvert(), py::arg().noconvert(), py::arg().noconvert(),
           py::arg().noconvert(), py::arg().noconvert())
      .def("rehearse", &rehearse, py::arg(), py::arg().noconvert(), py::arg(), py::arg(), py::arg(), py::arg(),
           py::arg())
      .def("time_drafts", &time_drafts, py::arg().noconvert(), py::arg(), py::arg(), py::arg(), py::arg(), py::arg())
      .def("fetch", &fetch)
      .def("replay", &replay, py::arg(), py::arg(), py::arg(), py::arg().noconvert(), py::arg().noconvert(),
           py::arg().noconvert())
      .def(
          "count",
          [](SuffixIndex& index, int64_t group, const Array<int32_t>& tokens) {
            const int32_t* string = row(tokens, -1, "tokens");
            return index.count(group, string, static_cast<uint32_t>(tokens.size()));
          },
          py::arg(), py::arg().noconvert())
      .def("check", &SuffixIndex::check, released)
      .def("groups", &SuffixIndex::groups)
      .def("bytes", &SuffixIndex::bytes)
      .def("num_tokens", &SuffixIndex::num_tokens)
      .def("take_evicted", &SuffixIndex::take_evicted);
}
