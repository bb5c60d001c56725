#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "core/array_record/chunk_cache.hpp"
#include "core/check.hpp"

namespace gristmill {
namespace {

// Returns a function that decodes one record of `size` bytes and counts calls.
ChunkCache::Decode counting(std::atomic<int>& count, std::size_t size) {
  return [&count, size](DecodedChunk& chunk) {
    ++count;
    chunk.ends = {size};
    return chunk.values.reset(size) ? Status() : Status(Code::kNoMemory, "");
  };
}

void test_cache_full_evicts_least_recently_used() {
  ChunkCache cache(250);
  std::atomic<int> decoded{0};
  const auto get = [&](std::uint64_t id) {
    CHECK(cache.get(id, counting(decoded, 92)).ok());
    return decoded.load();
  };
  CHECK_EQ(get(1), 1);
  CHECK_EQ(get(2), 2);
  CHECK_EQ(get(1), 2);
  CHECK_EQ(cache.held_bytes(), 200u);
  CHECK_EQ(get(3), 3);  // Evicts 2, the least recently used.
  CHECK_EQ(get(1), 3);
  CHECK_EQ(get(2), 4);
  CHECK_EQ(cache.held_bytes(), 200u);
}

void test_chunk_larger_than_limit_is_kept() {
  ChunkCache cache(250);
  std::atomic<int> decoded{0};
  CHECK(cache.get(1, counting(decoded, 1000)).ok());
  CHECK(cache.get(1, counting(decoded, 1000)).ok());
  CHECK_EQ(decoded.load(), 1);
  CHECK(cache.get(2, counting(decoded, 92)).ok());
  CHECK_EQ(cache.held_bytes(), 100u);
}

void test_limit_of_zero_keeps_nothing() {
  ChunkCache cache(0);
  std::atomic<int> decoded{0};
  CHECK(cache.get(1, counting(decoded, 10)).ok());
  CHECK(cache.get(1, counting(decoded, 10)).ok());
  CHECK_EQ(decoded.load(), 2);
  CHECK_EQ(cache.held_bytes(), 0u);
}

void test_system_error_is_not_cached() {
  ChunkCache cache(1000);
  const auto fail = [](DecodedChunk&) { return Status::system(EIO, "bad"); };
  CHECK_EQ(cache.get(1, fail).status().message(), "bad");
  std::atomic<int> decoded{0};
  CHECK(cache.get(1, counting(decoded, 10)).ok());
  CHECK_EQ(decoded.load(), 1);
}

void test_damaged_chunk_is_decoded_once() {
  ChunkCache cache(1000);
  int found = 0;
  const auto fail = [&](DecodedChunk&) {
    ++found;
    return Status(Code::kInvalidArgument, "damaged");
  };
  for (int i = 0; i < 3; ++i) {
    CHECK_EQ(cache.get(1, fail).status().message(), "damaged");
  }
  CHECK_EQ(found, 1);
}

void test_threads_decode_a_chunk_once() {
  ChunkCache cache(1 << 20);
  std::atomic<int> decoded{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t id = 0; id < 100; ++id) {
        CHECK(cache.get(id, counting(decoded, 10)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(decoded.load(), 100);
}

void test_forked_child_ignores_locked_entry() {
  ChunkCache cache(1000);
  std::atomic<int> decoded{0};
  pid_t child = -1;
  const auto fork_inside = [&](DecodedChunk& chunk) {
    child = fork();  // While this entry is locked.
    return counting(decoded, 10)(chunk);
  };
  CHECK(cache.get(1, fork_inside).ok());
  if (child == 0) _exit(cache.get(1, counting(decoded, 10)).ok() ? 0 : 1);
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void test_forked_child_uses_unused_cache() {
  ChunkCache cache(1000);
  std::atomic<int> decoded{0};
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 3; ++i) CHECK(cache.get(1, counting(decoded, 10)).ok());
    _exit(decoded.load() == 1 && cache.held_bytes() > 0 ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void test_forked_child_has_a_cache_of_its_own() {
  ChunkCache cache(1000);
  std::atomic<int> decoded{0};
  CHECK(cache.get(1, counting(decoded, 10)).ok());
  const pid_t child = fork();
  if (child == 0) {
    CHECK_EQ(cache.held_bytes(), 0u);
    for (int i = 0; i < 3; ++i) CHECK(cache.get(1, counting(decoded, 10)).ok());
    CHECK(cache.has(1));
    cache.drop(1, 1);
    _exit(decoded.load() == 2 && cache.held_bytes() == 0 ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(cache.has(1));
}

void test_drop_removes_chunks_of_one_file() {
  ChunkCache cache(1000);
  const std::uint64_t first = cache.reserve(3);
  const std::uint64_t second = cache.reserve(2);
  CHECK_EQ(second, first + 3);
  std::atomic<int> decoded = 0;
  for (std::uint64_t id = first; id < second + 2; ++id) {
    CHECK(cache.get(id, counting(decoded, 92)).ok());
  }
  CHECK_EQ(cache.held_bytes(), 500u);
  cache.drop(first, 3);
  CHECK_EQ(cache.held_bytes(), 200u);
  CHECK(cache.get(second, counting(decoded, 92)).ok());
  CHECK_EQ(decoded.load(), 5);
  CHECK(cache.get(first + 2, counting(decoded, 92)).ok());
  CHECK_EQ(decoded.load(), 6);
}

}  // namespace
}  // namespace gristmill

int main() {
  gristmill::test_drop_removes_chunks_of_one_file();
  gristmill::test_cache_full_evicts_least_recently_used();
  gristmill::test_chunk_larger_than_limit_is_kept();
  gristmill::test_limit_of_zero_keeps_nothing();
  gristmill::test_system_error_is_not_cached();
  gristmill::test_damaged_chunk_is_decoded_once();
  gristmill::test_threads_decode_a_chunk_once();
  gristmill::test_forked_child_ignores_locked_entry();
  gristmill::test_forked_child_uses_unused_cache();
  gristmill::test_forked_child_has_a_cache_of_its_own();
}
