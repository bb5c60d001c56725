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

// Decodes to one record of `size` bytes and counts how often.
ChunkCache::Decode counting(std::atomic<int>& count, std::size_t size) {
  return [&count, size](DecodedChunk& chunk) {
    ++count;
    chunk.ends = {size};
    return chunk.values.reset(size) ? Status() : Status(Code::kNoMemory, "");
  };
}

void keeps_the_recent_ones() {
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
  CHECK_EQ(get(3), 3);  // 2 was used longest ago.
  CHECK_EQ(get(1), 3);
  CHECK_EQ(get(2), 4);
  CHECK_EQ(cache.held_bytes(), 200u);
}

void keeps_one_that_is_too_large() {
  ChunkCache cache(250);
  std::atomic<int> decoded{0};
  CHECK(cache.get(1, counting(decoded, 1000)).ok());
  CHECK(cache.get(1, counting(decoded, 1000)).ok());
  CHECK_EQ(decoded.load(), 1);
  CHECK(cache.get(2, counting(decoded, 92)).ok());
  CHECK_EQ(cache.held_bytes(), 100u);
}

void without_memory_it_keeps_nothing() {
  ChunkCache cache(0);
  std::atomic<int> decoded{0};
  CHECK(cache.get(1, counting(decoded, 10)).ok());
  CHECK(cache.get(1, counting(decoded, 10)).ok());
  CHECK_EQ(decoded.load(), 2);
  CHECK_EQ(cache.held_bytes(), 0u);
}

void a_failure_of_the_system_is_not_kept() {
  ChunkCache cache(1000);
  const auto fail = [](DecodedChunk&) { return Status::system(EIO, "bad"); };
  CHECK_EQ(cache.get(1, fail).status().message(), "bad");
  std::atomic<int> decoded{0};
  CHECK(cache.get(1, counting(decoded, 10)).ok());
  CHECK_EQ(decoded.load(), 1);
}

void damage_is_found_once() {
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

void a_chunk_is_decoded_once_for_all_threads() {
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

void a_forked_child_needs_no_lock() {
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

void a_child_has_a_cache_that_its_parent_never_used() {
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

void files_share_a_cache_and_take_their_chunks_along() {
  ChunkCache cache(1000);
  const std::uint64_t first = cache.reserve(3);
  const std::uint64_t second = cache.reserve(2);
  CHECK_EQ(second, first + 3);
  std::atomic<int> decoded = 0;
  for (std::uint64_t id = first; id < second + 2; ++id) {
    CHECK(cache.get(id, counting(decoded, 92)).ok());
  }
  CHECK_EQ(cache.held_bytes(), 500u);
  cache.forget(first, 3);
  CHECK_EQ(cache.held_bytes(), 200u);
  CHECK(cache.get(second, counting(decoded, 92)).ok());
  CHECK_EQ(decoded.load(), 5);
  CHECK(cache.get(first + 2, counting(decoded, 92)).ok());
  CHECK_EQ(decoded.load(), 6);
}

}  // namespace
}  // namespace gristmill

int main() {
  gristmill::files_share_a_cache_and_take_their_chunks_along();
  gristmill::keeps_the_recent_ones();
  gristmill::keeps_one_that_is_too_large();
  gristmill::without_memory_it_keeps_nothing();
  gristmill::a_failure_of_the_system_is_not_kept();
  gristmill::damage_is_found_once();
  gristmill::a_chunk_is_decoded_once_for_all_threads();
  gristmill::a_forked_child_needs_no_lock();
  gristmill::a_child_has_a_cache_that_its_parent_never_used();
}
