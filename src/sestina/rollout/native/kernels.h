// Row-wise CPU kernels of the decoder. Every output row is a function of its own inputs alone, reduced in one
// fixed order, so it has the same bits in any batch, any chunk and after any recomputation (docs/decisions/0003).
//
// Shapes: R rows (tokens of this step), H hidden size, Q query heads, K key-value heads, D head size, V vocabulary.
// A page holds kPageTokens tokens of one layer: keys [K, D, kPageTokens], values [K, kPageTokens, D].
#pragma once

#include <cstdint>

namespace sestina {

constexpr int kPageTokens = 16;

struct Heads {
  int query;
  int kv;
  int size;  // a multiple of 16
};

// out[R, H] = x / rms(x) * weight
void rms_norm(const float* x, const float* weight, float eps, int rows, int width, float* out);

// residual[R, H] += delta; out[R, H] = residual / rms(residual) * weight
void add_rms_norm(const float* delta, float* residual, const float* weight, float eps, int rows, int width, float* out);

// out[R, F] = silu(gate) * up, where gate_up is [R, 2F]
void silu_mul(const float* gate_up, int rows, int width, float* out);

// Rotates the query heads of qkv[R, (Q + 2K) * D] in place (NeoX halves), writes rotated keys and plain values to the
// token slot of each row (page * kPageTokens + offset). cos_sin is [max_position, D]: cosines, then sines.
void rope_store(float* qkv, const float* cos_sin, const int32_t* positions, const int32_t* slots, int rows, Heads heads,
                float* key_pages, float* value_pages);

// The rows of draft trees: in place of what its sequence holds at its last offsets[r + 1] - offsets[r] positions, row r
// sees what the sequence holds at these cells (its own last). No offsets: every row sees its sequence as it is.
struct Branches {
  const int32_t* offsets;
  const int32_t* cells;
};

// out[R, Q * D]: each row attends to tokens 0..position of its own sequence, whose pages are listed in
// block_tables[sequence], with its own branch. Reads the queries from qkv.
void paged_attention(const float* qkv, const float* key_pages, const float* value_pages, const int32_t* block_tables,
                     int blocks_per_sequence, const int32_t* sequences, const int32_t* positions, Branches branches,
                     int rows, Heads heads, float* out);

// Copies the keys and values of token slots `from` to token slots `to`, one after the other.
void move_tokens(const int32_t* from, const int32_t* to, int count, Heads heads, float* key_pages, float* value_pages);

// Draws tokens[R] from softmax(logits / temperature) by the exponential race and reports their logprobs[R]; temperature
// 0 takes the argmax and reports the logprob at temperature 1. The noise of vocabulary entry v is a pure function of
// (key, position, v).
void sample(const float* logits, const float* temperatures, const uint64_t* keys, const int32_t* positions, int rows,
            int vocab, int32_t* tokens, float* logprobs);

}  // namespace sestina
