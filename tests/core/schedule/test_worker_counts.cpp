// What a worker tells of itself, as others read it meanwhile.
#include <atomic>
#include <string>
#include <thread>

#include "core/check.hpp"
#include "core/schedule/worker_counts.hpp"

using namespace gristmill;

namespace {

void a_text_is_read_as_it_was_written() {
  Counts counts{};
  CHECK(read_counts(counts).text.empty());
  write_text(counts, "first");
  write_text(counts, "2nd");
  CHECK(read_counts(counts).text == "2nd");
  write_text(counts, std::string(3000, 'x'));
  CHECK(read_counts(counts).text == std::string(2040, 'x'));
}

void a_text_whose_writer_ended_in_the_middle_is_empty() {
  Counts counts{};
  write_text(counts, "whole");
  counts.text_sequence.store(3, std::memory_order_relaxed);
  CHECK(read_counts(counts).text.empty());
  write_text(counts, "another");
  CHECK(read_counts(counts).text == "another");
}

void a_text_that_is_read_meanwhile_is_one_of_those_written() {
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

void the_unit_in_hand_counts_as_work() {
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
  a_text_is_read_as_it_was_written();
  a_text_whose_writer_ended_in_the_middle_is_empty();
  a_text_that_is_read_meanwhile_is_one_of_those_written();
  the_unit_in_hand_counts_as_work();
}
