#include <cstdint>
#include <vector>

#include "core/check.hpp"
#include "core/files/packed_chunks.hpp"

namespace gristmill {
namespace {

struct Given {
  std::uint64_t begin;
  std::uint64_t size;
};

PackedChunks pack(const std::vector<Given>& given, std::uint64_t end) {
  PackedChunks chunks;
  for (const Given& chunk : given) chunks.add(chunk.begin, chunk.size);
  chunks.finish(end);
  return chunks;
}

void test_chunks_are_returned_unchanged(std::size_t count, unsigned shift) {
  std::vector<Given> given;
  std::uint64_t at = 64;
  std::uint64_t state = count;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    given.push_back({at, state >> (64 - shift)});
    at += 41 + (state >> (64 - shift));
  }
  const PackedChunks chunks = pack(given, at);
  CHECK_EQ(chunks.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto chunk = chunks.at(i);
    CHECK_EQ(chunk.begin, given[i].begin);
    CHECK_EQ(chunk.end, i + 1 < count ? given[i + 1].begin : at);
    CHECK_EQ(chunk.decoded_size, given[i].size);
  }
}

void test_chunks_take_few_bytes() {
  std::vector<Given> given;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    given.push_back({64 + i * 1067, 1024});
  }
  CHECK(pack(given, 1u << 30).held_bytes() < 6 * given.size());
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    given[i] = {64 + i * 10'000'000, 9'999'000};
  }
  CHECK(pack(given, 1ull << 50).held_bytes() < 8 * given.size());
}

}  // namespace
}  // namespace gristmill

int main() {
  for (const std::size_t count : {0u, 1u, 2u, 63u, 64u, 65u, 128u, 1000u}) {
    for (const unsigned shift : {1u, 8u, 20u, 40u}) {
      gristmill::test_chunks_are_returned_unchanged(count, shift);
    }
  }
  gristmill::test_chunks_take_few_bytes();
}
