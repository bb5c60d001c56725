// The counts and the text of a worker, read while it writes them.
#include <atomic>
#include <string>
#include <thread>

#include "core/check.hpp"
#include "core/schedule/worker_counts.hpp"

using namespace gristmill;

namespace {

void test_text_is_read_as_written() {
  Counts counts{};
  CHECK(read_counts(counts).text.empty());
  write_text(counts, "first");
  write_text(counts, "2nd");
  CHECK(read_counts(counts).text == "2nd");
  write_text(counts, std::string(3000, 'x'));
  CHECK(read_counts(counts).text == std::string(2040, 'x'));
}

void test_unfinished_text_is_empty() {
  Counts counts{};
  write_text(counts, "whole");
  counts.text_sequence.store(3, std::memory_order_relaxed);
  CHECK(read_counts(counts).text.empty());
  write_text(counts, "another");
  CHECK(read_counts(counts).text == "another");
}

void test_concurrent_read_gets_whole_text() {
  Counts counts{};
  write_text(counts, std::string(2000, 'a'));
  std::atomic<bool> ended{false};
  std::thread writer([&] {
    for (int i = 1; i < 2000; ++i) {
      write_text(counts, std::string(2000, static_cast<char>('a' + i % 26)));
    }
    ended = true;
  });
  while (!ended) {
    const std::string text = read_counts(counts).text;
    CHECK(text.empty() || text == std::string(2000, text[0]));
  }
  writer.join();
}

void test_claimed_unit_counts_as_busy() {
  Counts counts{};
  counts.busy_ns.store(1000, std::memory_order_relaxed);
  CHECK(read_counts(counts).busy_ns == 1000);
  counts.claimed_ns.store(monotonic_ns() - 5000, std::memory_order_relaxed);
  CHECK(read_counts(counts).busy_ns >= 6000);
  add(counts.idle_ns, 7);
  add(counts.idle_ns, 8);
  CHECK(read_counts(counts).idle_ns == 15);
}

}  // namespace

int main() {
  test_text_is_read_as_written();
  test_unfinished_text_is_empty();
  test_concurrent_read_gets_whole_text();
  test_claimed_unit_counts_as_busy();
}
