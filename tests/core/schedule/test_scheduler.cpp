// The scheduler with ranges and sequences, and tests that apply to all kinds.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <random>
#include <thread>

#include "core/check.hpp"
#include "core/schedule/scheduler.hpp"
#include "core/schedule/worker_end.hpp"
#include "core/schedule/worker_threads.hpp"

using namespace gristmill;
using namespace gristmill::testing;

namespace {

void test_ranges_are_delivered_in_order(bool own_mapping) {
  const auto scheduler = make(config(UnitKind::kRange, 3, 4, 50, 4));
  WorkerThreads workers(*scheduler, {}, own_mapping);
  scheduler->start(&workers);
  NextResult last;
  CHECK(drain(*scheduler, 8, &last) == expected_ranges(4, 50));
  CHECK(last.kind == NextKind::kEnd);
  const RunPosition position = scheduler->position();
  for (const Position& each : position.positions) CHECK_EQ(each[0], 50);
}

void test_sequences_are_delivered_in_order(std::int64_t per_unit) {
  const auto scheduler = make(config(UnitKind::kSequential, 2, 5, -1, 1));
  Job job;
  job.stream_end = 60;
  job.per_unit = per_unit;
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  NextResult last;
  CHECK(drain(*scheduler, 8, &last) == expected_sequences(5, 60));
  CHECK(last.kind == NextKind::kEnd);
  CHECK(scheduler->position().ended == std::vector<bool>(5, true));
}

// A worker scans the units while others are published, so it may see the second
// unit of a stream, but not the first.
void test_owner_claims_units_in_order() {
  for (int round = 0; round < 20; ++round) {
    SchedulerConfig made = config(UnitKind::kSequential, 2, 2, -1, 1);
    made.buffer = 16;
    const auto scheduler = make(std::move(made));
    Job job;
    job.stream_end = 3000;
    WorkerThreads workers(*scheduler, job);
    scheduler->start(&workers);
    CHECK(drain(*scheduler, 8) == expected_sequences(2, 3000));
  }
}

// Plants one exit at each point, then random exits.
void survives_exits(UnitKind kind, std::function<Plant(std::uint64_t)> draw,
                    int least_exits, std::size_t longest) {
  SchedulerConfig made =
      config(kind, 3, 4, kind == UnitKind::kSequential ? -1 : 90, 3);
  made.max_restarts = 1;
  if (longest != 0)
    made.position_capacity = static_cast<std::uint32_t>(longest) + 2;
  const auto scheduler = make(std::move(made));
  Job job;
  job.stream_end = 120;
  job.repeat = 200;
  job.longest = longest;
  job.plant = [draw](int, std::uint64_t id, std::uint32_t attempt) {
    return attempt == 0 && id != 0 ? draw(id) : Plant::kNone;
  };
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  NextResult last;
  const bool owned = kind == UnitKind::kSequential;
  CHECK(drain(*scheduler, 200, &last) ==
        (owned ? expected_sequences(4, 120) : expected_ranges(4, 90)));
  CHECK(last.kind == NextKind::kEnd);
  CHECK(workers.exits >= least_exits);
  if (!owned) return;
  const RunPosition position = scheduler->position();
  for (const Position& each : position.positions) {
    const Values live = unpadded(each, longest);
    CHECK(live[0] > 100 && live[1] > 70);
  }
}

void test_worker_exits_lose_no_output(UnitKind kind, std::size_t longest) {
  for (const Plant plant : {Plant::kClaimed, Plant::kMidWrite, Plant::kWritten,
                            Plant::kNeed, Plant::kGranted, Plant::kCommitted}) {
    survives_exits(
        kind,
        [plant](std::uint64_t id) {
          return id % 7 == 3 ? plant : Plant::kNone;
        },
        3, longest);
  }
  for (unsigned seed = 0; seed < 5; ++seed) {
    survives_exits(
        kind,
        [seed](std::uint64_t id) {
          std::mt19937 random(seed * 1000 + static_cast<unsigned>(id));
          const auto pick = random() % 12;
          return pick < 6 ? static_cast<Plant>(pick + 2) : Plant::kNone;
        },
        5, longest);
  }
}

void test_unit_that_kills_workers_is_reported() {
  SchedulerConfig made = config(UnitKind::kRange, 2, 2, 20, 2);
  const auto scheduler = make(std::move(made));
  Job job;
  job.plant = [](int, std::uint64_t id, std::uint32_t) {
    return id == 4 ? Plant::kWritten : Plant::kNone;
  };
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  NextResult last;
  const auto seen = drain(*scheduler, 8, &last);
  // Unit 4 is the second unit of stream 1, with records 2 and 3.
  const auto all = expected_ranges(2, 20);
  CHECK(seen == std::vector<Seen>(all.begin(), all.begin() + 5));
  CHECK(last.kind == NextKind::kExited);
  CHECK_EQ(last.report.stream, 1);
  CHECK_EQ(last.report.attempts, 2U);
  CHECK_EQ(last.report.record, 3);
  CHECK(last.report.wait_status == 9);
  CHECK(!last.report.at_start);
  CHECK(scheduler->next(60).kind == NextKind::kExited);
}

void test_failed_starts_are_reported() {
  const auto scheduler = make(config(UnitKind::kRange, 1, 1, 20, 2));
  Job job;
  job.plant = [](int, std::uint64_t, std::uint32_t) { return Plant::kStarted; };
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  const NextResult next = scheduler->next(60);
  CHECK(next.kind == NextKind::kExited);
  CHECK(next.report.at_start);
  CHECK_EQ(workers.exits.load(), 3);
}

void test_startup_error_is_reported() {
  const auto scheduler = make(config(UnitKind::kRange, 1, 1, 20, 2));
  scheduler->start(nullptr);
  scheduler->on_started(0, 1, 0);
  WorkerEnd end(scheduler->region(), -1, 0, 1);
  end.set_startup_error("no module named x");
  scheduler->on_exited(0, 1);
  scheduler->on_exit_status(0, 1, 256);
  const NextResult next = scheduler->next(60);
  CHECK(next.kind == NextKind::kExited);
  CHECK_EQ(next.report.text, std::string("no module named x"));
  CHECK(next.report.wait_status == 256);
}

void test_run_continues_after_error() {
  const auto scheduler = make(config(UnitKind::kRange, 2, 2, 20, 4));
  Job job;
  job.fails_at = 5;
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  auto expected = expected_ranges(2, 20);
  expected[10].error = expected[11].error = true;
  CHECK(drain(*scheduler, 8) == expected);
}

void test_longer_unit_moves_later_units() {
  const auto scheduler = make(config(UnitKind::kRange, 3, 2, 1000, 4));
  Job job;
  job.absent = 7;
  job.plant = [](int, std::uint64_t id, std::uint32_t attempt) {
    return attempt == 0 && id % 11 == 3 ? Plant::kWritten : Plant::kNone;
  };
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  std::vector<Seen> expected;
  for (std::int64_t i = 0; i < 250; ++i) {
    if (i % 7 == 0) continue;
    for (const std::uint32_t s : {0U, 1U}) {
      expected.push_back({s, value_of(s, i, 0), false});
    }
  }
  for (const Seen& want : expected) {
    const NextResult next = scheduler->next(60);
    CHECK(next.kind == NextKind::kOutput);
    CHECK(read_output(next.output, 8) == want);
    scheduler->advance();
  }
}

void test_unit_records_adapt_to_memory() {
  SchedulerConfig made = config(UnitKind::kRange, 1, 1, 30, 8);
  made.buffer = 0;  // Two units are published ahead.
  const auto scheduler = make(std::move(made));
  scheduler->start(nullptr);
  scheduler->on_started(0, 1, 0);
  WorkerEnd end(scheduler->region(), -1, 0, 1);
  const auto whole = end.claim();
  CHECK_EQ(whole->count, 8);
  end.commit(*whole, UnitStatus::kMoved, 0, 0, Position{2});
  CHECK(scheduler->next(0.01).kind == NextKind::kTimeout);
  std::vector<std::int64_t> counts;
  for (std::int64_t first = 2; first < 30; first += counts.back()) {
    const auto work = end.claim();
    CHECK_EQ(work->first, first);
    counts.push_back(work->count);
    end.commit(*work, UnitStatus::kOk, 0, 0, Position{first + work->count});
    const NextKind kind = scheduler->next(0.01).kind;
    CHECK(kind == NextKind::kTimeout || kind == NextKind::kEnd);
  }
  CHECK(counts == (std::vector<std::int64_t>{2, 2, 4, 4, 8, 8}));
}

void test_run_starts_from_position() {
  SchedulerConfig made = config(UnitKind::kRange, 2, 3, 10, 4);
  made.start.positions = {{10}, {7}, {6}};
  made.start.next_stream = 2;
  const auto scheduler = make(std::move(made));
  WorkerThreads workers(*scheduler, {});
  scheduler->start(&workers);
  std::vector<Seen> expected;
  for (const auto& [s, i] : {std::pair{2U, 6},
                             {1U, 7},
                             {2U, 7},
                             {1U, 8},
                             {2U, 8},
                             {1U, 9},
                             {2U, 9}}) {
    expected.push_back({s, value_of(s, i, 0), false});
  }
  CHECK(drain(*scheduler, 8) == expected);
}

void test_reset_with_busy_workers() {
  for (const UnitKind kind : {UnitKind::kRange, UnitKind::kSequential}) {
    const bool owned = kind == UnitKind::kSequential;
    const auto scheduler = make(config(kind, 3, 4, owned ? -1 : 40, 3));
    Job job;
    job.stream_end = 60;
    WorkerThreads workers(*scheduler, job);
    scheduler->start(&workers);
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < round; ++i) {
        CHECK(scheduler->next(60).kind == NextKind::kOutput);
        scheduler->advance();
      }
      CHECK(scheduler
                ->reset({std::vector<Position>(
                             4, owned ? Position{0, 0} : Position{0}),
                         0, std::vector<bool>(4, false)})
                .ok());
    }
    CHECK(drain(*scheduler, 8) == expected_ranges(4, 40));
  }
}

void test_outputs_with_views_do_not_change() {
  const auto scheduler = make(config(UnitKind::kRange, 2, 2, 200, 1));
  Job job;
  job.repeat = 1000;
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  std::vector<std::pair<Output, ArenaSlot*>> kept;
  const auto expected = expected_ranges(2, 200);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const NextResult next = scheduler->next(60);
    CHECK(next.kind == NextKind::kOutput);
    if (i % 3 == 0) kept.emplace_back(next.output, scheduler->add_view());
    scheduler->advance();
  }
  for (std::size_t k = 0; k < kept.size(); ++k) {
    CHECK(read_output(kept[k].first, 1000) == expected[3 * k]);
    release_view(kept[k].second);
  }
}

void test_full_memory_is_reported_and_recovers() {
  SchedulerConfig made = config(UnitKind::kRange, 2, 1, 400, 1);
  made.memory_limit = 8 << 20;
  const auto scheduler = make(std::move(made));
  Job job;
  job.repeat = 100'000;  // 800 kB
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  std::vector<ArenaSlot*> kept;
  std::int64_t delivered = 0;
  for (int fulls = 0; delivered < 400;) {
    const NextResult next = scheduler->next(60);
    if (next.kind == NextKind::kFull) {
      CHECK(++fulls < 400);
      CHECK(next.shortage.viewed_slots > 0 && next.shortage.viewed_bytes > 0);
      CHECK_EQ(next.shortage.limit_bytes, std::uint64_t{8} << 20);
      CHECK(kept.size() >= 5);
      for (ArenaSlot* slot : kept) release_view(slot);
      kept.clear();
      continue;
    }
    CHECK(next.kind == NextKind::kOutput);
    CHECK_EQ(read_output(next.output, 100'000).value,
             value_of(0, delivered++, 0));
    kept.push_back(scheduler->add_view());
    scheduler->advance();
  }
  for (ArenaSlot* slot : kept) release_view(slot);
}

// A worker that claims the next unit, and may need a larger slot for it.
class Claimer {
 public:
  Claimer(Scheduler& scheduler, std::uint32_t worker)
      : scheduler_(scheduler), end_(scheduler.region(), -1, worker, 1) {
    scheduler.on_started(static_cast<int>(worker), 1, 0);
    claim();
  }

  void claim() { work_ = *end_.claim(); }

  // Requests a slot in another thread, which calls `then` when it has the slot.
  // Returns after the request.
  void need(std::uint64_t bytes, std::function<void()> then = [] {}) {
    thread_ = std::thread([this, bytes, then] {
      has_slot = end_.request_larger_slot(work_, bytes);
      if (has_slot) then();
    });
    while (state() != UnitState::kNeed) std::this_thread::yield();
    scheduler_.on_worker_notified();
  }

  void commit(UnitStatus status) {
    end_.commit(work_, status, 0, 0, Position{work_.first + work_.count});
  }

  void join() { thread_.join(); }
  [[nodiscard]] std::uint64_t capacity() const { return work_.capacity; }

  std::atomic<bool> has_slot = false;

 private:
  [[nodiscard]] UnitState state() const {
    for (std::uint32_t i = 0; i < scheduler_.region().control().units; ++i) {
      const UnitWord word{scheduler_.region().unit(i).word.load()};
      if (word.id() == work_.id) return word.state();
    }
    return UnitState::kEmpty;
  }

  Scheduler& scheduler_;
  WorkerEnd end_;
  Work work_;
  std::thread thread_;
};

constexpr std::uint64_t kMib = 1 << 20;

void test_next_unit_waits_for_memory_of_claimed_unit() {
  SchedulerConfig made = config(UnitKind::kRange, 2, 1, 2, 1);
  made.memory_limit = 3 * kMib;
  const auto scheduler = make(std::move(made));
  scheduler->start(nullptr);
  Claimer first(*scheduler, 0);
  Claimer second(*scheduler, 1);
  second.need(kMib * 3 / 2);
  second.join();
  CHECK(second.has_slot);
  first.need(2 * kMib, [&first] { first.commit(UnitStatus::kEnd); });
  const NextResult late = scheduler->next(0.01);
  CHECK(late.kind == NextKind::kTimeout);
  CHECK_EQ(late.report.worker, -1);  // No worker is at fault.
  CHECK_EQ(late.report.stream, 0);
  CHECK_EQ(late.shortage.limit_bytes, 3 * kMib);
  CHECK(!first.has_slot);
  second.commit(UnitStatus::kOk);
  CHECK(scheduler->next(60).kind == NextKind::kEnd);
  first.join();
}

// A unit that waits for memory may follow one that has memory.
void test_next_unit_gets_memory_of_later_units() {
  SchedulerConfig made = config(UnitKind::kRange, 3, 1, 3, 1);
  made.memory_limit = 4 * kMib;
  const auto scheduler = make(std::move(made));
  scheduler->start(nullptr);
  Claimer first(*scheduler, 0);
  Claimer second(*scheduler, 1);
  Claimer third(*scheduler, 2);
  second.need(kMib * 3 / 2);
  second.join();
  CHECK(second.has_slot);
  second.commit(UnitStatus::kOk);
  third.need(4 * kMib);
  first.need(3 * kMib, [&first] { first.commit(UnitStatus::kEnd); });
  CHECK(scheduler->next(60).kind == NextKind::kEnd);
  first.join();
  third.join();
  CHECK(!third.has_slot);
}

// The next unit cannot be published until the slot of a withdrawn unit is free,
// and no worker waits for memory before that.
void test_withdrawn_unit_frees_its_slot() {
  SchedulerConfig made = config(UnitKind::kRange, 1, 1, 4, 1);
  made.memory_limit = 4 * kMib;
  made.buffer = 0;
  const auto scheduler = make(std::move(made));
  scheduler->start(nullptr);
  Claimer worker(*scheduler, 0);
  worker.need(3 * kMib);
  worker.join();
  worker.commit(UnitStatus::kOk);
  worker.claim();
  worker.commit(UnitStatus::kOk);
  CHECK(scheduler->next(0.01).kind == NextKind::kTimeout);
  worker.claim();
  CHECK(worker.capacity() >= 3 * kMib);
  CHECK(scheduler->reset({{Position{0}}, 0, {false}}).ok());
  NextKind found{};
  std::thread consumer([&] { found = scheduler->next(60).kind; });
  const Control& control = scheduler->region().control();
  while (control.waiting_for.load() == 0) std::this_thread::yield();
  worker.need(4 * kMib);
  worker.join();
  CHECK(!worker.has_slot);
  worker.claim();  // The consumer has published it.
  worker.commit(UnitStatus::kEnd);
  consumer.join();
  CHECK(found == NextKind::kEnd);
}

void test_unit_without_memory_is_retried() {
  for (const UnitKind kind : {UnitKind::kRange, UnitKind::kSequential}) {
    SchedulerConfig made = config(kind, 1, 1, 20, 2);
    const std::size_t length = made.start.positions[0].size();
    const auto scheduler = make(std::move(made));
    scheduler->start(nullptr);
    scheduler->on_started(0, 1, 0);
    WorkerEnd end(scheduler->region(), -1, 0, 1);
    const auto work = end.claim();
    end.commit(*work, UnitStatus::kNoMemory, 0, 0, Position(length, 99));
    const NextResult next = scheduler->next();
    CHECK(next.kind == NextKind::kFull);
    CHECK(next.shortage.needed_bytes > 0);
    const auto again = end.claim();
    CHECK_EQ(again->id, work->id);
    CHECK_EQ(again->attempt, 0U);
    CHECK(again->position_before == Position(length, 0));
  }
}

// The units after a refused one start at its end, which is not known yet.
void test_units_after_refused_one_are_not_computed() {
  SchedulerConfig made = config(UnitKind::kSequential, 2, 3, -1, 1);
  made.start.positions.assign(3, Position{1, 0});  // Record 0 gives no output.
  const auto scheduler = make(std::move(made));
  Job job;
  job.stream_end = 60;
  WorkerThreads workers(*scheduler, job);
  scheduler->start(nullptr);
  // Allocating pages fails for this unit, but not for the next one of its
  // stream.
  const Region region = scheduler->region();
  const Unit& refused = region.unit(2);
  CHECK_EQ(refused.task.stream, 2U);
  const auto allow = [&region, offset = refused.offset,
                      bytes = refused.capacity](int protection) {
    CHECK_EQ(mprotect(region.base() + offset, bytes, protection), 0);
  };
  allow(PROT_NONE);
  for (const int worker : {0, 1}) workers.start_worker(worker, 1);
  std::vector<Seen> seen;
  for (int fulls = 0;;) {
    NextResult last;
    const auto more = drain(*scheduler, 8, &last);
    seen.insert(seen.end(), more.begin(), more.end());
    if (last.kind == NextKind::kEnd) break;
    CHECK(last.kind == NextKind::kFull);
    CHECK(++fulls < 4);  // The worker may have retried before this call.
    allow(PROT_READ | PROT_WRITE);
  }
  CHECK(seen == expected_sequences(3, 60));
}

void test_units_outgrow_tight_arena() {
  for (const UnitKind kind : {UnitKind::kRange, UnitKind::kSequential}) {
    const bool owned = kind == UnitKind::kSequential;
    SchedulerConfig made = config(kind, 3, 4, owned ? -1 : 40, 1);
    made.memory_limit = 9 << 20;  // Three of the largest units.
    const auto scheduler = make(std::move(made));
    Job job;
    job.stream_end = 60;
    job.repeat = 360'000;  // 2.9 MB
    WorkerThreads workers(*scheduler, job);
    scheduler->start(&workers);
    NextResult last;
    CHECK(drain(*scheduler, 360'000, &last) == expected_ranges(4, 40));
    CHECK(last.kind == NextKind::kEnd);
  }
}

void test_close_ends_wait() {
  const auto scheduler = make(config(UnitKind::kRange, 1, 1, 20, 2));
  scheduler->start(nullptr);
  std::thread closer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    scheduler->close();
  });
  CHECK(scheduler->next().kind == NextKind::kClosed);
  closer.join();
}

void test_timeout_names_holder() {
  const auto scheduler = make(config(UnitKind::kRange, 1, 1, 20, 2));
  scheduler->start(nullptr);
  scheduler->on_started(0, 1, 0);
  WorkerEnd end(scheduler->region(), -1, 0, 1);
  CHECK(end.claim().has_value());
  end.current_record_address()->store(1);
  const NextResult next = scheduler->next(0.01);
  CHECK(next.kind == NextKind::kTimeout);
  CHECK_EQ(next.report.worker, 0);
  CHECK_EQ(next.report.record, 1);
}

void test_timeout_during_start_names_no_worker() {
  const auto scheduler = make(config(UnitKind::kRange, 1, 1, 20, 2));
  scheduler->start(nullptr);
  NextResult next = scheduler->next(0.01);
  CHECK(next.kind == NextKind::kTimeout);
  CHECK_EQ(next.report.worker, -1);
  CHECK_EQ(next.report.stream, 0);
  scheduler->on_started(0, 1, 0);  // It may still be importing modules.
  for (int i = 0; i < 3; ++i) {
    next = scheduler->next(0.01);
    CHECK_EQ(next.report.worker, -1);
  }
  next = scheduler->next(0.01);  // Its start takes too long.
  CHECK_EQ(next.report.worker, 0);
  CHECK(next.report.idle);
}

void test_timeout_names_busy_worker() {
  for (const UnitKind kind : {UnitKind::kRange, UnitKind::kSequential}) {
    const bool owned = kind == UnitKind::kSequential;
    const auto scheduler = make(config(kind, 1, 1, owned ? -1 : 20, 2));
    scheduler->start(nullptr);
    scheduler->on_started(0, 1, 0);
    WorkerEnd end(scheduler->region(), -1, 0, 1);
    CHECK(end.claim().has_value());
    end.current_record_address()->store(7);
    // The unit is withdrawn, but the worker still computes it.
    const std::size_t length = scheduler->position().positions[0].size();
    CHECK(scheduler->reset({{Position(length, 0)}, 0, {false}}).ok());
    const NextResult next = scheduler->next(0.01);
    CHECK(next.kind == NextKind::kTimeout);
    CHECK_EQ(next.report.worker, 0);
    CHECK_EQ(next.report.record, 7);
    CHECK(!next.report.idle);
  }
}

void test_timeout_names_idle_worker() {
  const auto scheduler = make(config(UnitKind::kRange, 1, 1, 20, 2));
  scheduler->start(nullptr);
  scheduler->on_started(0, 1, 0);
  // It has requested work before, but now it does not.
  scheduler->region().cell(0).started.store(1);
  const NextResult next = scheduler->next(0.01);
  CHECK_EQ(next.report.worker, 0);
  CHECK_EQ(next.report.record, -1);
  CHECK(next.report.idle);
}

// Commits some units immediately, then claims one.
std::optional<Work> claim_after_fast_ones(Scheduler& scheduler, WorkerEnd& end,
                                          int units) {
  for (int i = 0; i < units; ++i) {
    const auto work = end.claim();
    const auto bytes = pack(0, {work->first}, {{work->first + 1}}, 8, false);
    std::memcpy(work->slot, bytes.data(), bytes.size());
    end.commit(*work, UnitStatus::kOk, 1, bytes.size(), {work->first + 1});
    CHECK(scheduler.next(60).kind == NextKind::kOutput);
    scheduler.advance();
  }
  return end.claim();
}

void test_slow_unit_is_reported_once() {
  SchedulerConfig made = config(UnitKind::kRange, 1, 1, 20, 1);
  made.slow_s = 0.02;
  const auto scheduler = make(std::move(made));
  scheduler->start(nullptr);
  scheduler->on_started(0, 1, 0);
  WorkerEnd end(scheduler->region(), -1, 0, 1);
  const auto work = claim_after_fast_ones(*scheduler, end, 4);
  end.current_record_address()->store(4);
  const NextResult slow = scheduler->next(60);
  CHECK(slow.kind == NextKind::kSlow);
  CHECK_EQ(slow.report.worker, 0);
  CHECK_EQ(slow.report.record, 4);
  CHECK(slow.report.busy_s >= 0.02);
  CHECK(20 * slow.report.usual_s <= slow.report.busy_s);
  CHECK(slow.waited_s >= 0);
  CHECK(scheduler->next(0.05).kind == NextKind::kTimeout);
  const auto bytes = pack(0, {4}, {{5}}, 8, false);
  std::memcpy(work->slot, bytes.data(), bytes.size());
  end.commit(*work, UnitStatus::kOk, 1, bytes.size(), {5});
  CHECK(scheduler->next(60).kind == NextKind::kOutput);
}

void test_slow_unit_without_limit_is_not_reported() {
  for (const auto& [slow_s, units] : {std::pair{0.001, 2}, {-1.0, 4}}) {
    SchedulerConfig made = config(UnitKind::kRange, 1, 1, 20, 1);
    made.slow_s = slow_s;
    const auto scheduler = make(std::move(made));
    scheduler->start(nullptr);
    scheduler->on_started(0, 1, 0);
    WorkerEnd end(scheduler->region(), -1, 0, 1);
    CHECK(claim_after_fast_ones(*scheduler, end, units).has_value());
    CHECK(scheduler->next(0.05).kind == NextKind::kTimeout);
  }
}

// A unit that was reported after a timeout is not reported again as slow.
void test_timed_out_unit_is_not_reported_as_slow() {
  SchedulerConfig made = config(UnitKind::kRange, 1, 1, 20, 1);
  made.slow_s = 0.05;
  const auto scheduler = make(std::move(made));
  scheduler->start(nullptr);
  scheduler->on_started(0, 1, 0);
  WorkerEnd end(scheduler->region(), -1, 0, 1);
  CHECK(claim_after_fast_ones(*scheduler, end, 4).has_value());
  CHECK(scheduler->next(0.001).kind == NextKind::kTimeout);
  CHECK(scheduler->next(0.1).kind == NextKind::kTimeout);
}

void test_worker_not_admitted_claims_nothing() {
  const auto scheduler = make(config(UnitKind::kRange, 1, 1, 20, 2));
  scheduler->start(nullptr);
  WorkerEnd end(scheduler->region(), -1, 0, 2);
  scheduler->on_started(0, 1, 0);
  scheduler->close();
  CHECK(!end.claim().has_value());
}

void test_fork_returns_forked_and_parent_continues() {
  const auto scheduler = make(config(UnitKind::kRange, 1, 1, 40, 1));
  WorkerThreads workers(*scheduler, {});
  scheduler->start(&workers);
  const NextResult first = scheduler->next(60);
  CHECK(first.kind == NextKind::kOutput);
  ArenaSlot* const slot = scheduler->add_view();
  const pid_t pid = fork();
  if (pid == 0) {
    const bool told = scheduler->next().kind == NextKind::kForked;
    scheduler->close();
    _exit(told && read_output(first.output, 8).value == 0 ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
  release_view(slot);
  CHECK(drain(*scheduler, 8) == expected_ranges(1, 40));
  CHECK_EQ(read_output(first.output, 8).value, value_of(0, 0, 0));
}

void test_fork_neither_holds_nor_advances() {
  const auto scheduler = make(config(UnitKind::kRange, 1, 1, 40, 1));
  WorkerThreads workers(*scheduler, {});
  scheduler->start(&workers);
  CHECK(scheduler->next(60).kind == NextKind::kOutput);
  const pid_t pid = fork();
  if (pid == 0) {
    const bool holds = scheduler->add_view() != nullptr;
    scheduler->advance();
    const bool advanced = scheduler->position().positions[0] != Position{0};
    _exit(holds || advanced ? 1 : 0);
  }
  int status = 0;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
  // The child has not counted a delivery in the shared memory.
  CHECK_EQ(scheduler->region().control().delivered.load(), 0U);
  CHECK(drain(*scheduler, 8) == expected_ranges(1, 40));
}

void test_corrupt_unit_is_error() {
  const auto scheduler = make(config(UnitKind::kRange, 1, 1, 20, 2));
  scheduler->start(nullptr);
  scheduler->on_started(0, 1, 0);
  WorkerEnd end(scheduler->region(), -1, 0, 1);
  const auto work = end.claim();
  end.commit(*work, UnitStatus::kOk, 2, 100, {2});
  CHECK(scheduler->next().kind == NextKind::kExited);
}

void test_positions_of_any_length_are_kept() {
  constexpr std::uint32_t kCapacity = 8193;  // 64 KiB and the length
  for (const bool own_mapping : {false, true}) {
    SchedulerConfig made = config(UnitKind::kSequential, 2, 3, -1, 1);
    made.position_capacity = kCapacity;
    const auto scheduler = make(std::move(made));
    Job job;
    job.stream_end = 60;
    job.longest = kCapacity - 2;
    WorkerThreads workers(*scheduler, job, own_mapping);
    scheduler->start(&workers);
    std::vector<Position> half;
    for (int i = 0; i < 60; ++i) {
      CHECK(scheduler->next(60).kind == NextKind::kOutput);
      scheduler->advance();
    }
    half = scheduler->position().positions;
    const auto rest = drain(*scheduler, 8);
    CHECK(scheduler->reset({half, 0, std::vector<bool>(3, false)}).ok());
    CHECK(drain(*scheduler, 8) == rest);
    for (const Position& position : half) unpadded(position, job.longest);
  }
}

void test_position_beyond_capacity_is_error() {
  SchedulerConfig made = config(UnitKind::kSequential, 1, 1, -1, 1);
  made.start.positions = {Position(9, 0)};
  CHECK(!Scheduler::create(made).ok());
  made.position_capacity = 9;
  const auto scheduler = make(made);
  CHECK(!scheduler->reset({{Position(10, 0)}, 0, {false}}).ok());
  CHECK(!scheduler->reset({{Position()}, 0, {false}}).ok());
  for (const std::uint32_t capacity : {0U, kMaxPositionCapacity + 1}) {
    made.position_capacity = capacity;
    CHECK(!Scheduler::create(made).ok());
  }
}

// The parent checks the fields that a killed or faulty worker has written.
void test_invalid_position_length_is_error() {
  for (const std::uint32_t length : {0U, 3U, 1U << 31}) {
    SchedulerConfig made = config(UnitKind::kSequential, 1, 1, -1, 1);
    made.position_capacity = 2;
    const auto scheduler = make(std::move(made));
    scheduler->start(nullptr);
    scheduler->on_started(0, 1, 0);
    WorkerEnd end(scheduler->region(), -1, 0, 1);
    const auto work = end.claim();
    end.commit(*work, UnitStatus::kOk, 0, 0, {2, 1});
    scheduler->region().unit(0).position_after = length;
    CHECK(scheduler->next().kind == NextKind::kExited);
  }
}

void test_ten_thousand_units_are_delivered() {
  const auto scheduler = make(config(UnitKind::kRange, 4, 5, 2000, 1));
  Job job;
  job.repeat = 64;
  job.plant = [](int, std::uint64_t id, std::uint32_t attempt) {
    return attempt == 0 && id % 501 == 500 ? Plant::kMidWrite : Plant::kNone;
  };
  WorkerThreads workers(*scheduler, job);
  scheduler->start(&workers);
  CHECK(drain(*scheduler, 64) == expected_ranges(5, 2000));
}

}  // namespace

int main() {
  test_ranges_are_delivered_in_order(false);
  test_ranges_are_delivered_in_order(true);
  for (const std::int64_t per_unit : {1, 3}) {
    test_sequences_are_delivered_in_order(per_unit);
  }
  test_worker_exits_lose_no_output(UnitKind::kRange, 0);
  for (const std::size_t longest : {0, 6, 5000}) {
    test_worker_exits_lose_no_output(UnitKind::kSequential, longest);
  }
  test_positions_of_any_length_are_kept();
  test_position_beyond_capacity_is_error();
  test_unit_that_kills_workers_is_reported();
  test_failed_starts_are_reported();
  test_startup_error_is_reported();
  test_run_continues_after_error();
  test_longer_unit_moves_later_units();
  test_unit_records_adapt_to_memory();
  test_run_starts_from_position();
  test_owner_claims_units_in_order();
  test_reset_with_busy_workers();
  test_outputs_with_views_do_not_change();
  test_full_memory_is_reported_and_recovers();
  test_next_unit_waits_for_memory_of_claimed_unit();
  test_next_unit_gets_memory_of_later_units();
  test_withdrawn_unit_frees_its_slot();
  test_unit_without_memory_is_retried();
  test_units_after_refused_one_are_not_computed();
  test_units_outgrow_tight_arena();
  test_close_ends_wait();
  test_timeout_names_holder();
  test_timeout_during_start_names_no_worker();
  test_timeout_names_busy_worker();
  test_timeout_names_idle_worker();
  test_slow_unit_is_reported_once();
  test_slow_unit_without_limit_is_not_reported();
  test_timed_out_unit_is_not_reported_as_slow();
  test_worker_not_admitted_claims_nothing();
  test_fork_returns_forked_and_parent_continues();
  test_fork_neither_holds_nor_advances();
  test_corrupt_unit_is_error();
  test_invalid_position_length_is_error();
  test_ten_thousand_units_are_delivered();
}
