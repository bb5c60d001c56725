// The scheduler with units of kind REQUEST.
#include <sys/wait.h>

#include <algorithm>
#include <random>
#include <utility>

#include "core/check.hpp"
#include "core/schedule/scheduler.hpp"
#include "core/schedule/worker_end.hpp"
#include "core/schedule/worker_threads.hpp"

using namespace gristmill;
using namespace gristmill::testing;

namespace {

SchedulerConfig asking(std::uint32_t workers, bool in_order = true) {
  SchedulerConfig made = config(UnitKind::kRequest, workers, workers, -1, 1);
  made.in_order = in_order;
  made.position_capacity = 100;
  return made;
}

// Returns a request for output `i`.  The numbers before it only make it longer.
Position request(std::int64_t i) {
  Position numbers(static_cast<std::size_t>(i % 50) + 1, 7);
  numbers.back() = i;
  return numbers;
}

void ask(Scheduler& scheduler, std::uint32_t stream, std::int64_t i) {
  CHECK(scheduler.add_request(stream, request(i)).ok());
}

std::vector<Seen> expected(std::int64_t outputs, std::uint32_t workers) {
  std::vector<Seen> all;
  for (std::int64_t i = 0; i < outputs; ++i) {
    const auto s = static_cast<std::uint32_t>(i % workers);
    all.push_back({s, value_of(s, i, 0), false});
  }
  return all;
}

void test_outputs_are_in_order_of_requests() {
  const auto scheduler = make(asking(3));
  WorkerThreads workers(*scheduler, {});
  scheduler->start(&workers);
  for (int i = 0; i < 100; ++i) ask(*scheduler, i % 3, i);
  NextResult last;
  CHECK(drain(*scheduler, 8, &last) == expected(100, 3));
  CHECK(last.kind == NextKind::kEnd);
}

void test_random_requests_are_answered_in_order() {
  const auto scheduler = make(asking(3));
  WorkerThreads workers(*scheduler, {});
  scheduler->start(&workers);
  std::mt19937 random(1);
  std::vector<Seen> wanted;
  for (int i = 0; i < 300; ++i) {
    const auto s = static_cast<std::uint32_t>(random() % 3);
    ask(*scheduler, s, i);
    wanted.push_back({s, value_of(s, i, 0), false});
  }
  CHECK(drain(*scheduler, 8) == wanted);
}

void test_requests_after_end_are_answered() {
  const auto scheduler = make(asking(2));
  WorkerThreads workers(*scheduler, {});
  scheduler->start(&workers);
  for (int round = 0; round < 200; ++round) {
    ask(*scheduler, 0, round);
    ask(*scheduler, 1, round + 1000);
    CHECK(drain(*scheduler, 8) ==
          (std::vector<Seen>{{0, value_of(0, round, 0), false},
                             {1, value_of(1, round + 1000, 0), false}}));
  }
}

void test_stream_without_requests_is_skipped() {
  const auto scheduler = make(asking(3));
  WorkerThreads workers(*scheduler, {});
  scheduler->start(&workers);
  ask(*scheduler, 0, 0);
  for (int i = 0; i < 4; ++i) ask(*scheduler, 2, i);
  const auto seen = drain(*scheduler, 8);
  CHECK_EQ(seen.size(), std::size_t{5});
  CHECK_EQ(seen[0].stream, 0U);
  CHECK_EQ(seen[1].stream, 2U);
}

void test_run_continues_after_error() {
  const auto scheduler = make(asking(2));
  Job job;
  job.fails_at = 3;
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  for (int i = 0; i < 10; ++i) ask(*scheduler, i % 2, i);
  auto wanted = expected(10, 2);
  wanted[3].error = true;
  CHECK(drain(*scheduler, 8) == wanted);
}

void test_new_worker_gets_same_requests(std::size_t repeat) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    const auto scheduler = make(asking(3));
    Job job;
    job.repeat = repeat;
    job.plant = [seed](int, std::uint64_t id, std::uint32_t attempt) {
      if (attempt != 0 || id == 0) return Plant::kNone;
      std::mt19937 random(seed * 1000 + static_cast<unsigned>(id));
      const auto pick = random() % 18;
      return pick < 6 ? static_cast<Plant>(pick + 2) : Plant::kNone;
    };
    WorkerThreads workers(*scheduler, job);
    scheduler->start(&workers);
    for (int i = 0; i < 60; ++i) ask(*scheduler, i % 3, i);
    CHECK(drain(*scheduler, repeat) == expected(60, 3));
    CHECK(workers.exits > 2);
  }
}

void test_out_of_order_returns_ready_output() {
  const auto scheduler = make(asking(2, false));
  scheduler->start(nullptr);
  for (const int w : {0, 1}) {
    scheduler->on_started(w, 1, 100 + w);
    for (int i = 0; i < 2; ++i) ask(*scheduler, w, i);
  }
  WorkerEnd second(scheduler->region(), -1, 1, 1);
  for (int i = 0; i < 2; ++i) {
    const auto work = second.claim();
    CHECK_EQ(work->stream, 1U);
    const auto bytes = pack(1, {work->position_before.back()}, {{0}}, 8, false);
    std::memcpy(work->slot, bytes.data(), bytes.size());
    second.commit(*work, UnitStatus::kOk, 1, bytes.size(), {0});
  }
  for (int i = 0; i < 2; ++i) {
    const NextResult next = scheduler->next(60);
    CHECK(next.kind == NextKind::kOutput);
    CHECK(read_output(next.output, 8) == (Seen{1, value_of(1, i, 0), false}));
    scheduler->advance();
  }
  CHECK(scheduler->next(0).kind == NextKind::kTimeout);
}

void test_out_of_order_returns_all_outputs() {
  const auto scheduler = make(asking(4, false));
  WorkerThreads workers(*scheduler, {});
  scheduler->start(&workers);
  for (int i = 0; i < 400; ++i) ask(*scheduler, i % 4, i);
  auto seen = drain(*scheduler, 8);
  auto wanted = expected(400, 4);
  const auto less = [](const Seen& a, const Seen& b) {
    return std::pair(a.stream, a.value) < std::pair(b.stream, b.value);
  };
  std::ranges::stable_sort(seen, less);
  std::ranges::stable_sort(wanted, less);
  CHECK(seen == wanted);
}

void test_reset_drops_requests() {
  const auto scheduler = make(asking(2));
  WorkerThreads workers(*scheduler, {});
  scheduler->start(&workers);
  for (int i = 0; i < 50; ++i) ask(*scheduler, i % 2, i);
  CHECK(scheduler->next(60).kind == NextKind::kOutput);
  CHECK(scheduler->reset({{{0}, {0}}, 0, {false, false}}).ok());
  CHECK(scheduler->next(60).kind == NextKind::kEnd);
  for (int i = 0; i < 10; ++i) ask(*scheduler, i % 2, i);
  CHECK(drain(*scheduler, 8) == expected(10, 2));
}

void test_exit_is_error_if_exits_are_final() {
  SchedulerConfig made = asking(2);
  made.exits_final = true;
  made.max_restarts = 0;
  const auto scheduler = make(std::move(made));
  scheduler->start(nullptr);
  scheduler->on_started(0, 1, 100);
  scheduler->on_started(1, 1, 101);
  CHECK_EQ(scheduler->processes()[1].pid, 101);
  ask(*scheduler, 0, 0);
  scheduler->on_exited(1, 1);  // It held no unit.
  scheduler->on_exit_status(1, 1, 9);
  const NextResult next = scheduler->next(60);
  CHECK(next.kind == NextKind::kExited);
  CHECK_EQ(next.report.pid, 101);
  CHECK_EQ(*next.report.wait_status, 9);
  CHECK(!scheduler->processes()[1].alive);
  CHECK_EQ(*scheduler->processes()[1].wait_status, 9);
}

void test_invalid_requests_are_errors() {
  const auto scheduler = make(asking(2));
  CHECK(!scheduler->add_request(2, {1}).ok());
  CHECK(!scheduler->add_request(0, {}).ok());
  CHECK(!scheduler->add_request(0, Position(101)).ok());
  const auto other = make(config(UnitKind::kSequential, 1, 1, -1, 1));
  CHECK(!other->add_request(0, {1}).ok());
}

}  // namespace

int main() {
  test_outputs_are_in_order_of_requests();
  test_random_requests_are_answered_in_order();
  test_requests_after_end_are_answered();
  test_stream_without_requests_is_skipped();
  test_run_continues_after_error();
  test_new_worker_gets_same_requests(8);
  test_new_worker_gets_same_requests(300'000);
  test_out_of_order_returns_ready_output();
  test_out_of_order_returns_all_outputs();
  test_reset_drops_requests();
  test_exit_is_error_if_exits_are_final();
  test_invalid_requests_are_errors();
}
