// Ranges whose outputs are handed over in parts.
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/schedule/scheduler.hpp"
#include "core/schedule/worker_end.hpp"
#include "core/schedule/worker_threads.hpp"

using namespace gristmill;
using namespace gristmill::testing;

namespace {

constexpr std::size_t kRepeat = 8;

Job in_parts(std::int64_t per_part) {
  Job job;
  job.per_part = per_part;
  return job;
}

void test_parts_are_delivered_in_order(std::int64_t per_part) {
  const auto scheduler = make(config(UnitKind::kRange, 3, 4, 50, 16));
  WorkerThreads workers(*scheduler, in_parts(per_part));
  scheduler->start(&workers);
  NextResult last;
  CHECK(drain(*scheduler, kRepeat, &last) == expected_ranges(4, 50));
  CHECK(last.kind == NextKind::kEnd);
  for (const Position& position : scheduler->position().positions) {
    CHECK_EQ(position[0], 50);
  }
}

void survives_exits(const std::function<Plant(std::uint64_t)>& draw,
                    int least_exits) {
  const auto scheduler = make(config(UnitKind::kRange, 3, 4, 90, 8));
  Job job = in_parts(2);
  job.plant = [draw](int, std::uint64_t id, std::uint32_t attempt) {
    return attempt == 0 && id != 0 ? draw(id) : Plant::kNone;
  };
  // A part resets the attempts, so one exit for each unit is enough.
  std::mutex mutex;
  std::vector<std::uint64_t> exited;
  const auto plant = job.plant;
  job.plant = [&, plant](int worker, std::uint64_t id, std::uint32_t attempt) {
    const Plant planted = plant(worker, id, attempt);
    const std::lock_guard lock(mutex);
    if (planted == Plant::kNone || std::ranges::count(exited, id) != 0) {
      return Plant::kNone;
    }
    exited.push_back(id);
    return planted;
  };
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  NextResult last;
  CHECK(drain(*scheduler, kRepeat, &last) == expected_ranges(4, 90));
  CHECK(last.kind == NextKind::kEnd);
  CHECK(workers.exits >= least_exits);
}

void test_worker_exits_lose_no_output() {
  for (const Plant plant : {Plant::kClaimed, Plant::kMidWrite, Plant::kWritten,
                            Plant::kNeed, Plant::kGranted, Plant::kCommitted,
                            Plant::kOfferedPart, Plant::kResumed}) {
    survives_exits(
        [plant](std::uint64_t id) {
          return id % 5 == 3 ? plant : Plant::kNone;
        },
        3);
  }
  for (unsigned seed = 0; seed < 10; ++seed) {
    survives_exits(
        [seed](std::uint64_t id) {
          std::mt19937 random(seed * 1000 + static_cast<unsigned>(id));
          return static_cast<Plant>(2 + random() % 8);
        },
        5);
  }
}

void test_fatal_unit_delivers_parts_then_fails() {
  const auto scheduler = make(config(UnitKind::kRange, 2, 1, 40, 10));
  Job job = in_parts(3);
  job.plant = [](int, std::uint64_t id, std::uint32_t) {
    return id == 2 ? Plant::kWritten : Plant::kNone;
  };
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  NextResult last;
  const auto seen = drain(*scheduler, kRepeat, &last);
  // Unit 2 has records 10 to 19.  Its last part that is not the end of the unit
  // has records 16 to 18.
  const auto all = expected_ranges(1, 40);
  CHECK(seen == std::vector<Seen>(all.begin(), all.begin() + 19));
  CHECK(last.kind == NextKind::kExited);
  CHECK_EQ(last.report.attempts, 2U);
  CHECK_EQ(scheduler->position().positions[0][0], 19);
}

void test_run_continues_after_error() {
  const auto scheduler = make(config(UnitKind::kRange, 2, 2, 40, 16));
  Job job = in_parts(2);
  job.fails_at = 7;
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  auto expected = expected_ranges(2, 40);
  expected[14].error = expected[15].error = true;
  CHECK(drain(*scheduler, kRepeat) == expected);
}

// A worker in this thread, which has claimed records 0 to 9.
struct Alone {
  Alone()
      : scheduler(make(config(UnitKind::kRange, 1, 1, 30, 10))),
        end(scheduler->region(), -1, 0, 1) {
    scheduler->start(nullptr);
    scheduler->on_started(0, 1, 0);
    work = end.claim();
    CHECK_EQ(work->count, 10);
  }

  void offer_part(std::int64_t first, std::int64_t last) {
    Values records;
    std::vector<Values> positions;
    for (auto i = first; i < last; ++i) {
      records.push_back(i);
      positions.push_back({i + 1});
    }
    const auto bytes = pack(0, records, positions, kRepeat, false);
    std::memcpy(work->slot, bytes.data(), bytes.size());
    CHECK(end.offer_part(*work, static_cast<std::uint32_t>(records.size()),
                         bytes.size(), {last}));
  }

  void expect(std::int64_t first, std::int64_t last) {
    for (auto i = first; i < last; ++i) {
      const NextResult next = scheduler->next(60);
      CHECK(next.kind == NextKind::kOutput);
      CHECK_EQ(read_output(next.output, kRepeat).value, value_of(0, i, 0));
      scheduler->advance();
      CHECK_EQ(scheduler->position().positions[0][0], i + 1);
    }
  }

  std::unique_ptr<Scheduler> scheduler;
  WorkerEnd end;
  std::optional<Work> work;
};

void test_part_is_delivered_before_rest() {
  Alone alone;
  CHECK(alone.scheduler->next(0.01).kind == NextKind::kTimeout);
  alone.offer_part(0, 3);
  alone.expect(0, 3);
  CHECK(alone.end.can_resume());
  CHECK(alone.end.resume(*alone.work));
  const NextResult next = alone.scheduler->next(0.01);
  CHECK(next.kind == NextKind::kTimeout);
  CHECK_EQ(next.report.worker, 0);
  alone.offer_part(3, 9);
  alone.scheduler->on_worker_notified();
  CHECK(alone.end.resume(*alone.work));
  alone.offer_part(9, 10);
  alone.expect(3, 10);
  // The unit has no more records.
  CHECK(alone.end.resume(*alone.work));
  alone.end.commit(*alone.work, UnitStatus::kOk, 0, 0, {10});
  CHECK(alone.scheduler->next(0.01).kind == NextKind::kTimeout);
  CHECK_EQ(alone.end.claim()->first, 10);
}

void test_rest_is_computed_by_other_after_exit() {
  Alone alone;
  alone.offer_part(0, 4);
  alone.scheduler->on_exited(0, 1);
  alone.scheduler->on_started(0, 2, 0);
  WorkerEnd next(alone.scheduler->region(), -1, 0, 2);
  const auto work = next.claim();
  CHECK_EQ(work->id, alone.work->id);
  CHECK_EQ(work->first, 4);
  CHECK_EQ(work->count, 6);
  CHECK_EQ(work->attempt, 1U);
  CHECK(work->position_before == Position{4});
  alone.expect(0, 4);
}

void test_withdrawn_unit_is_lost_after_part() {
  Alone alone;
  alone.offer_part(0, 4);
  CHECK(alone.scheduler->reset({{{20}}, 0, {false}}).ok());
  CHECK(!alone.end.resume(*alone.work));
  CHECK_EQ(alone.end.claim()->first, 20);
}

void test_undelivered_parts_are_dropped_by_reset() {
  Alone alone;
  alone.offer_part(0, 4);
  alone.scheduler->on_worker_notified();
  CHECK(alone.end.resume(*alone.work));
  CHECK(alone.scheduler->reset({{{2}}, 0, {false}}).ok());
  const auto bytes = pack(0, {4}, {{5}}, kRepeat, false);
  std::memcpy(alone.work->slot, bytes.data(), bytes.size());
  alone.end.commit(*alone.work, UnitStatus::kOk, 1, bytes.size(), {5});
  CHECK_EQ(alone.end.claim()->first, 2);
}

void test_unreadable_part_is_error() {
  for (const std::int64_t after : {0, 11}) {
    Alone alone;
    alone.work->slot[0] = std::byte{0};
    CHECK(alone.end.offer_part(*alone.work, 1, 100, {after}));
    const NextResult next = alone.scheduler->next(60);
    CHECK(next.kind == NextKind::kExited);
    CHECK(!alone.end.resume(*alone.work));
  }
}

void test_reset_with_busy_workers() {
  const auto scheduler = make(config(UnitKind::kRange, 3, 4, 40, 8));
  WorkerThreads workers(*scheduler, in_parts(1));
  scheduler->start(&workers);
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < round; ++i) {
      CHECK(scheduler->next(60).kind == NextKind::kOutput);
      scheduler->advance();
    }
    CHECK(scheduler
              ->reset({std::vector<Position>(4, Position{0}), 0,
                       std::vector<bool>(4, false)})
              .ok());
  }
  CHECK(drain(*scheduler, kRepeat) == expected_ranges(4, 40));
}

void test_parts_fit_tight_arena() {
  // Two units of 2.9 MB are delivered in turn while others are computed.
  for (const std::uint64_t limit : {13, 16, 64}) {
    SchedulerConfig made = config(UnitKind::kRange, 3, 2, 24, 4);
    made.memory_limit = limit << 20;
    const auto scheduler = make(std::move(made));
    Job job = in_parts(1);
    job.repeat = 90'000;  // A part of 0.7 MB.
    job.tight = true;
    WorkerThreads workers(*scheduler, job);
    scheduler->start(&workers);
    for (const Seen& want : expected_ranges(2, 24)) {
      NextResult next = scheduler->next(60);
      // Memory may be full for a moment.
      while (next.kind == NextKind::kFull) next = scheduler->next(60);
      CHECK(next.kind == NextKind::kOutput);
      CHECK(read_output(next.output, job.repeat) == want);
      scheduler->advance();
    }
    CHECK(scheduler->next(60).kind == NextKind::kEnd);
  }
}

}  // namespace

int main() {
  for (const std::int64_t per_part : {1, 3, 7, 15}) {
    test_parts_are_delivered_in_order(per_part);
  }
  test_worker_exits_lose_no_output();
  test_fatal_unit_delivers_parts_then_fails();
  test_run_continues_after_error();
  test_part_is_delivered_before_rest();
  test_rest_is_computed_by_other_after_exit();
  test_withdrawn_unit_is_lost_after_part();
  test_undelivered_parts_are_dropped_by_reset();
  test_unreadable_part_is_error();
  test_reset_with_busy_workers();
  test_parts_fit_tight_arena();
}
