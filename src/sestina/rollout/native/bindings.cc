// Thin binding: addresses and sizes in, nothing out. The caller (rollout/ops_native.py) owns every buffer and its
// shape.
#include <pybind11/pybind11.h>

#include <cstdint>

#include "kernels.h"

namespace py = pybind11;
using Address = std::uintptr_t;

namespace {

const float* in(Address a) { return reinterpret_cast<const float*>(a); }
float* out(Address a) { return reinterpret_cast<float*>(a); }
const int32_t* ints(Address a) { return reinterpret_cast<const int32_t*>(a); }

}  // namespace

PYBIND11_MODULE(_native, m) {
  using namespace sestina;
  m.doc() = "Row-wise CPU kernels of the decoder; see native/kernels.h.";
  m.attr("PAGE_TOKENS") = kPageTokens;

  m.def("rms_norm", [](Address x, Address weight, float eps, int rows, int width, Address y) {
    rms_norm(in(x), in(weight), eps, rows, width, out(y));
  });
  m.def("add_rms_norm", [](Address delta, Address residual, Address weight, float eps, int rows, int width, Address y) {
    add_rms_norm(in(delta), out(residual), in(weight), eps, rows, width, out(y));
  });
  m.def("silu_mul",
        [](Address gate_up, int rows, int width, Address y) { silu_mul(in(gate_up), rows, width, out(y)); });
  m.def("rope_store", [](Address qkv, Address cos_sin, Address positions, Address slots, int rows, int query_heads,
                         int kv_heads, int head_size, Address key_pages, Address value_pages) {
    rope_store(out(qkv), in(cos_sin), ints(positions), ints(slots), rows, {query_heads, kv_heads, head_size},
               out(key_pages), out(value_pages));
  });
  m.def("paged_attention", [](Address qkv, Address key_pages, Address value_pages, Address block_tables,
                              int blocks_per_sequence, Address sequences, Address positions, Address branch_offsets,
                              Address branch_cells, int rows, int query_heads, int kv_heads, int head_size, Address y) {
    paged_attention(in(qkv), in(key_pages), in(value_pages), ints(block_tables), blocks_per_sequence, ints(sequences),
                    ints(positions), {ints(branch_offsets), ints(branch_cells)}, rows,
                    {query_heads, kv_heads, head_size}, out(y));
  });
  m.def("move_tokens", [](Address from, Address to, int count, int query_heads, int kv_heads, int head_size,
                          Address key_pages, Address value_pages) {
    move_tokens(ints(from), ints(to), count, {query_heads, kv_heads, head_size}, out(key_pages), out(value_pages));
  });
  m.def("sample", [](Address logits, Address temperatures, Address keys, Address positions, int rows, int vocab,
                     Address tokens, Address logprobs) {
    sample(in(logits), in(temperatures), reinterpret_cast<const uint64_t*>(keys), ints(positions), rows, vocab,
           reinterpret_cast<int32_t*>(tokens), out(logprobs));
  });
}
