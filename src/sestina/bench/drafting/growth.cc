// Appends the first N tokens of a file of chunks to one group; the time of that goes to standard output, in nanoseconds
// per token. A chunk is the number of its stream, its tokens' number and the tokens. Arguments: file, N.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "group.h"

namespace {

std::vector<int32_t> chunks_of(const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) std::exit(1);
  std::fseek(file, 0, SEEK_END);
  std::vector<int32_t> words(static_cast<size_t>(std::ftell(file)) / sizeof(int32_t));
  std::rewind(file);
  if (std::fread(words.data(), sizeof(int32_t), words.size(), file) != words.size()) std::exit(1);
  std::fclose(file);
  return words;
}

}  // namespace

// By this name callgrind is told what to count.
extern "C" __attribute__((noinline)) void build(sestina::drafting::Group& group, const std::vector<int32_t>& words,
                                                uint64_t most) {
  std::vector<int64_t> ends;
  for (size_t at = 0; at < words.size() && group.num_tokens() < most;) {
    const size_t stream = static_cast<size_t>(words[at]);
    const uint32_t count = static_cast<uint32_t>(words[at + 1]);
    while (ends.size() <= stream) {
      group.start(static_cast<int64_t>(ends.size()), 1);
      ends.push_back(0);
    }
    group.append(static_cast<uint32_t>(stream) + 1, ends[stream], &words[at + 2], count);
    ends[stream] += count;
    at += 2 + count;
  }
}

int main(int, char** arguments) {
  const std::vector<int32_t> words = chunks_of(arguments[1]);
  sestina::drafting::Group group(0, 0, 24);
  group.start_prompt(nullptr, 0);
  const auto start = std::chrono::steady_clock::now();
  build(group, words, std::strtoull(arguments[2], nullptr, 10));
  const auto span = std::chrono::steady_clock::now() - start;
  std::printf("%.3f\n",
              static_cast<double>(span / std::chrono::nanoseconds(1)) / static_cast<double>(group.num_tokens()));
  return 0;
}
