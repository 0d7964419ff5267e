#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "simd.h"

namespace sestina {
namespace {

void normalise_row(const float* x, const float* weight, float eps, int width, float* out) {
  v16f squares = splat(0.0f);
  float tail = 0.0f;
  int i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const v16f v = load(x + i);
    squares += v * v;
  }
  for (int j = i; j < width; ++j) tail += x[j] * x[j];
  const float scale = 1.0f / std::sqrt((sum_lanes(squares) + tail) / width + eps);
  for (i = 0; i < width; ++i) out[i] = x[i] * scale * weight[i];
}

int64_t head_page_floats(Heads heads) { return static_cast<int64_t>(heads.size) * kPageTokens; }

// The last pages of a row in a draft tree, put together from the cells of its branch: it is then read as any row is,
// in the same order, so that its sums have the same bits as when its branch is all there is.
struct Branch {
  int first = 0;  // page
  int pages = 0;
  std::vector<float> keys, values;  // [pages, K] head pages

  const float* page(const std::vector<float>& of, int p, int head, Heads heads) const {
    return of.data() + (static_cast<int64_t>(p - first) * heads.kv + head) * head_page_floats(heads);
  }
};

// What one row reads: the pages of its sequence, or of its branch from branch->first on, and those the next row will
// begin with.
struct Context {
  const float* keys;
  const float* values;
  const int32_t* blocks;
  const int32_t* next_blocks;
  const Branch* branch;  // null: none
  int length;
  int pages;
};

const float* head_page(const float* pages, int block, int head, Heads heads) {
  return pages + (static_cast<int64_t>(block) * heads.kv + head) * head_page_floats(heads);
}

const float* key_page(const Context& c, int p, int head, Heads heads) {
  if (c.branch && p >= c.branch->first) return c.branch->page(c.branch->keys, p, head, heads);
  return head_page(c.keys, c.blocks[p], head, heads);
}

const float* value_page(const Context& c, int p, int head, Heads heads) {
  if (c.branch && p >= c.branch->first) return c.branch->page(c.branch->values, p, head, heads);
  return head_page(c.values, c.blocks[p], head, heads);
}

void copy_token(const float* keys, const float* values, int from, float* to_keys, float* to_values, int to,
                Heads heads) {
  for (int d = 0; d < heads.size; ++d) to_keys[d * kPageTokens + to] = keys[d * kPageTokens + from];
  std::memcpy(to_values + to * heads.size, values + from * heads.size, heads.size * sizeof(float));
}

void gather_branch(const Context& c, const int32_t* cells, int count, Heads heads, Branch& out) {
  const int start = c.length - count;
  out.first = start / kPageTokens;
  out.pages = c.pages - out.first;
  const int64_t floats = head_page_floats(heads);
  out.keys.resize(out.pages * heads.kv * floats);
  out.values.resize(out.pages * heads.kv * floats);
  for (int h = 0; h < heads.kv; ++h) {
    float* keys = out.keys.data() + h * floats;
    float* values = out.values.data() + h * floats;
    std::copy_n(head_page(c.keys, c.blocks[out.first], h, heads), floats, keys);
    std::copy_n(head_page(c.values, c.blocks[out.first], h, heads), floats, values);
    for (int i = 0; i < count; ++i) {
      const int at = start + i - out.first * kPageTokens;
      const int64_t page = static_cast<int64_t>(at / kPageTokens) * heads.kv * floats;
      const int block = c.blocks[cells[i] / kPageTokens];
      copy_token(head_page(c.keys, block, h, heads), head_page(c.values, block, h, heads), cells[i] % kPageTokens,
                 keys + page, values + page, at % kPageTokens, heads);
    }
  }
}

// Pages are scattered over memory, where hardware prefetchers lose the trail. The kernels read keys 0..n, values 0..n,
// then the next row's keys; these two name the page to fetch (into L2, it is read once) while page p is being read.
constexpr int kAhead = 2;

const float* page_after_key(const Context& c, int p, int head, Heads heads) {
  if (p + kAhead < c.pages) return head_page(c.keys, c.blocks[p + kAhead], head, heads);
  return head_page(c.values, c.blocks[std::min(p + kAhead - c.pages, c.pages - 1)], head, heads);
}

const float* page_after_value(const Context& c, int p, int head, Heads heads) {
  if (p + kAhead < c.pages) return head_page(c.values, c.blocks[p + kAhead], head, heads);
  return head_page(c.keys, c.next_blocks[std::max(0, p + kAhead - c.pages)], head, heads);
}

void fetch(const float* line) { __builtin_prefetch(line, 0, 1); }

// scores[N, pages * 16]: scaled products of N query heads with the keys they share, -inf past the last token.
// N heads at a time: each key vector is loaded once, and the heads' sums hide the latency of the multiply-adds.
template <int N>
void score_heads(const float* query, const Context& c, int kv_head, Heads heads, float* scores) {
  const v16f scale = splat(1.0f / std::sqrt(static_cast<float>(heads.size)));
  const v16f nothing = splat(-std::numeric_limits<float>::infinity());
  for (int p = 0; p < c.pages; ++p) {
    const float* keys = key_page(c, p, kv_head, heads);
    const float* next = page_after_key(c, p, kv_head, heads);
    v16f sum[N] = {};
    for (int d = 0; d < heads.size; ++d) {
      const v16f k = load(keys + d * kPageTokens);
      fetch(next + d * kPageTokens);
      for (int n = 0; n < N; ++n) sum[n] += splat(query[n * heads.size + d]) * k;
    }
    const v16i live = first_lanes(c.length - p * kLanes);
    for (int n = 0; n < N; ++n) store(scores + (n * c.pages + p) * kLanes, select(live, scale * sum[n], nothing));
  }
}

// Unnormalised probabilities in place; returns one over their sum.
float softmax_in_place(float* scores, int pages) {
  v16f best = load(scores);
  for (int p = 1; p < pages; ++p) best = max(best, load(scores + p * kLanes));
  const v16f top = splat(max_lanes(best));
  v16f total = splat(0.0f);
  for (int p = 0; p < pages; ++p) {
    const v16f e = exp(load(scores + p * kLanes) - top);
    store(scores + p * kLanes, e);
    total += e;
  }
  return 1.0f / sum_lanes(total);
}

// out[N, D] from dimension `from` on, V vectors of it: values weighed and added in token order.
template <int N, int V>
void weigh_values(const float* weights, const float* norms, const Context& c, int kv_head, Heads heads, int from,
                  float* out) {
  v16f sum[N][V] = {};
  for (int p = 0; p < c.pages; ++p) {
    const float* values = value_page(c, p, kv_head, heads) + from;
    const float* next = page_after_value(c, p, kv_head, heads) + from;
    const int tokens = std::min(kPageTokens, c.length - p * kPageTokens);
    for (int t = 0; t < tokens; ++t) {
      for (int v = 0; v < V; ++v) fetch(next + t * heads.size + v * kLanes);
      for (int n = 0; n < N; ++n) {
        const v16f w = splat(weights[(n * c.pages + p) * kLanes + t]);
        for (int v = 0; v < V; ++v) sum[n][v] += w * load(values + t * heads.size + v * kLanes);
      }
    }
  }
  for (int n = 0; n < N; ++n)
    for (int v = 0; v < V; ++v) store(out + n * heads.size + from + v * kLanes, sum[n][v] * splat(norms[n]));
}

template <int N>
void attend_heads(const float* query, const Context& c, int kv_head, Heads heads, float* scores, float* out) {
  score_heads<N>(query, c, kv_head, heads, scores);
  float norms[N];
  for (int n = 0; n < N; ++n) norms[n] = softmax_in_place(scores + n * c.pages * kLanes, c.pages);
  int from = 0;
  for (; from + 2 * kLanes <= heads.size; from += 2 * kLanes)
    weigh_values<N, 2>(scores, norms, c, kv_head, heads, from, out);
  for (; from < heads.size; from += kLanes) weigh_values<N, 1>(scores, norms, c, kv_head, heads, from, out);
}

template <int N>
void attend_while(int& left, const float*& query, const Context& c, int kv_head, Heads heads, float* scores,
                  float*& out) {
  for (; left >= N; left -= N, query += N * heads.size, out += N * heads.size)
    attend_heads<N>(query, c, kv_head, heads, scores, out);
}

// The query heads of one key-value head, as many at a time as the registers hold sums for.
void attend_group(const float* query, const Context& c, int kv_head, Heads heads, float* scores, float* out) {
  int left = heads.query / heads.kv;
  if (kHeadsAtOnce >= 8) attend_while<8>(left, query, c, kv_head, heads, scores, out);
  attend_while<4>(left, query, c, kv_head, heads, scores, out);
  attend_while<2>(left, query, c, kv_head, heads, scores, out);
  attend_while<1>(left, query, c, kv_head, heads, scores, out);
}

// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection whose output bits all depend on all input bits.
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

// Uniform in (0, 1) from 53 bits of the counter stream `key`.
double uniform(uint64_t key, uint64_t counter) {
  const uint64_t bits = mix(key + (counter + 1) * kGolden);
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

int argmax(const float* x, int n) {
  int best = 0;
  for (int i = 1; i < n; ++i)
    if (x[i] > x[best]) best = i;
  return best;
}

// First arrival of Poisson processes with rates exp(logit): the Gumbel-max draw without its second logarithm, and
// mostly without the first, since an exponential -log(u) is never below 1 - u.
int race(const float* weights, uint64_t key, int n) {
  int winner = 0;
  double first = std::numeric_limits<double>::infinity();
  for (int i = 0; i < n; ++i) {
    const double u = uniform(key, i);
    if (1.0 - u >= first * weights[i]) continue;
    const double arrival = -std::log(u) / weights[i];
    if (arrival < first) first = arrival, winner = i;
  }
  return winner;
}

// weights[n] = exp(scale * (x - x[top])), zero-padded to whole vectors; returns their sum.
float softmax_weights(const float* x, int n, int top, float scale, float* weights) {
  v16f total = splat(0.0f);
  for (int i = 0; i < n; i += kLanes) {
    const int count = n - i < kLanes ? n - i : kLanes;
    float padded[kLanes];
    for (int j = 0; j < kLanes; ++j) padded[j] = x[i + (j < count ? j : 0)];
    const v16f e = select(first_lanes(count), exp(splat(scale) * (load(padded) - splat(x[top]))), splat(0.0f));
    store(weights + i, e);
    total += e;
  }
  return sum_lanes(total);
}

}  // namespace

void rms_norm(const float* x, const float* weight, float eps, int rows, int width, float* out) {
  for (int r = 0; r < rows; ++r) normalise_row(x + r * width, weight, eps, width, out + r * width);
}

void add_rms_norm(const float* delta, float* residual, const float* weight, float eps, int rows, int width,
                  float* out) {
  for (int r = 0; r < rows; ++r) {
    float* row = residual + r * width;
    for (int i = 0; i < width; ++i) row[i] += delta[r * width + i];
    normalise_row(row, weight, eps, width, out + r * width);
  }
}

void silu_mul(const float* gate_up, int rows, int width, float* out) {
  for (int r = 0; r < rows; ++r) {
    const float* gate = gate_up + static_cast<int64_t>(r) * 2 * width;
    const float* up = gate + width;
    float* row = out + static_cast<int64_t>(r) * width;
    int i = 0;
    for (; i + kLanes <= width; i += kLanes) {
      const v16f g = load(gate + i);
      store(row + i, g / (splat(1.0f) + exp(-g)) * load(up + i));
    }
    for (; i < width; ++i) row[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  }
}

void rope_store(float* qkv, const float* cos_sin, const int32_t* positions, const int32_t* slots, int rows, Heads heads,
                float* key_pages, float* value_pages) {
  const int half = heads.size / 2, width = (heads.query + 2 * heads.kv) * heads.size;
  for (int r = 0; r < rows; ++r) {
    float* row = qkv + static_cast<int64_t>(r) * width;
    const float* cosines = cos_sin + static_cast<int64_t>(positions[r]) * heads.size;
    const float* sines = cosines + half;
    for (int h = 0; h < heads.query + heads.kv; ++h) {
      float* x = row + h * heads.size;
      for (int i = 0; i < half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cosines[i] - b * sines[i];
        x[i + half] = b * cosines[i] + a * sines[i];
      }
    }
    const int64_t page = slots[r] / kPageTokens, offset = slots[r] % kPageTokens;
    for (int h = 0; h < heads.kv; ++h) {
      const float* k = row + (heads.query + h) * heads.size;
      const float* v = k + heads.kv * heads.size;
      const int64_t base = (page * heads.kv + h) * heads.size * kPageTokens;
      for (int d = 0; d < heads.size; ++d) key_pages[base + d * kPageTokens + offset] = k[d];
      std::memcpy(value_pages + base + offset * heads.size, v, heads.size * sizeof(float));
    }
  }
}

void paged_attention(const float* qkv, const float* key_pages, const float* value_pages, const int32_t* block_tables,
                     int blocks_per_sequence, const int32_t* sequences, const int32_t* positions, Branches branches,
                     int rows, Heads heads, float* out) {
  const int width = (heads.query + 2 * heads.kv) * heads.size, group = heads.query / heads.kv * heads.size;
  std::vector<float> scores;
  Branch branch;
  for (int r = 0; r < rows; ++r) {
    const int length = positions[r] + 1, pages = (length + kPageTokens - 1) / kPageTokens;
    const int32_t* blocks = block_tables + static_cast<int64_t>(sequences[r]) * blocks_per_sequence;
    const int32_t* next =
        block_tables + static_cast<int64_t>(sequences[std::min(r + 1, rows - 1)]) * blocks_per_sequence;
    Context context{key_pages, value_pages, blocks, next, nullptr, length, pages};
    const int seen = branches.offsets ? branches.offsets[r + 1] - branches.offsets[r] : 0;
    if (seen) {
      gather_branch(context, branches.cells + branches.offsets[r], seen, heads, branch);
      context.branch = &branch;
    }
    scores.resize(static_cast<size_t>(kHeadsAtOnce) * pages * kPageTokens);
    for (int h = 0; h < heads.kv; ++h)
      attend_group(qkv + static_cast<int64_t>(r) * width + h * group, context, h, heads, scores.data(),
                   out + static_cast<int64_t>(r) * heads.query * heads.size + h * group);
  }
}

void move_tokens(const int32_t* from, const int32_t* to, int count, Heads heads, float* key_pages, float* value_pages) {
  const int64_t floats = head_page_floats(heads);
  for (int i = 0; i < count; ++i)
    for (int h = 0; h < heads.kv; ++h) {
      const int64_t source = (static_cast<int64_t>(from[i] / kPageTokens) * heads.kv + h) * floats;
      const int64_t target = (static_cast<int64_t>(to[i] / kPageTokens) * heads.kv + h) * floats;
      copy_token(key_pages + source, value_pages + source, from[i] % kPageTokens, key_pages + target,
                 value_pages + target, to[i] % kPageTokens, heads);
    }
}

void sample(const float* logits, const float* temperatures, const uint64_t* keys, const int32_t* positions, int rows,
            int vocab, int32_t* tokens, float* logprobs) {
  std::vector<float> weights(static_cast<size_t>(vocab) + kLanes);
  for (int r = 0; r < rows; ++r) {
    const float* x = logits + static_cast<int64_t>(r) * vocab;
    const int top = argmax(x, vocab);
    const float scale = temperatures[r] > 0.0f ? 1.0f / temperatures[r] : 1.0f;
    const float total = softmax_weights(x, vocab, top, scale, weights.data());
    const uint64_t key = mix(keys[r] + kGolden * (static_cast<uint64_t>(positions[r]) + 1));
    tokens[r] = temperatures[r] > 0.0f ? race(weights.data(), key, vocab) : top;
    logprobs[r] = scale * (x[tokens[r]] - x[top]) - std::log(total);
  }
}

}  // namespace sestina
