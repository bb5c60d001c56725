// Every transition of a unit, step by step and without threads.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <thread>

#include "core/check.hpp"
#include "core/schedule/lease.hpp"
#include "core/schedule/worker_end.hpp"

using namespace gristmill;

namespace {

constexpr std::uint32_t kUnits = 4;

// A LeaseTable with a small arena and two admitted workers.
struct Bench {
  explicit Bench(std::uint32_t capacity = 2)
      : arena(*Arena::create(Region::head_bytes(2, kUnits, capacity), 0)
                   .value()
                   .release()),
        region(arena.base()) {
    Control& control = *new (arena.base()) Control{};
    control.workers = 2;
    control.units = kUnits;
    control.streams = 2;
    control.position_capacity = capacity;
    for (std::uint32_t w = 0; w < 2; ++w) {
      (new (&region.cell(w)) WorkerCell{})->admitted = 1;
    }
    for (std::uint32_t i = 0; i < kUnits; ++i) new (&region.unit(i)) Unit{};
    table = std::make_unique<LeaseTable>(region, arena.fd());
  }
  ~Bench() { delete &arena; }

  std::uint64_t publish(std::uint32_t stream, std::uint32_t owner = 0,
                        std::uint64_t prev = 0) {
    Lease lease;
    lease.stream = stream;
    lease.owner = owner;
    lease.prev = prev;
    lease.kind = owner == 0 ? UnitKind::kRange : UnitKind::kSequential;
    lease.first = 7;
    lease.count = 3;
    lease.slot = arena.take(5000);
    return table->publish(lease, {7, 70});
  }

  Arena& arena;
  Region region;
  std::unique_ptr<LeaseTable> table;
};

void test_unit_word_keeps_its_fields() {
  const UnitWord word =
      UnitWord::make((std::uint64_t{1} << 40) - 2, 255, UnitState::kNeed, 4095);
  CHECK_EQ(word.id(), (std::uint64_t{1} << 40) - 2);
  CHECK_EQ(word.attempt(), 255U);
  CHECK(word.state() == UnitState::kNeed);
  CHECK_EQ(word.holder(), 4095U);
  CHECK_EQ(word.with(UnitState::kGranted, 1).id(), word.id());
}

void test_oldest_unit_is_claimed_first() {
  Bench bench;
  const auto first = bench.publish(0);
  const auto second = bench.publish(1);
  CHECK(bench.table->withdraw_free(first));
  const auto third = bench.publish(0);  // In the cell of the first unit.
  WorkerEnd end(bench.region, -1, 1, 1);
  auto work = end.claim();
  CHECK_EQ(work->id, second);
  CHECK_EQ(work->first, 7);
  CHECK_EQ(work->count, 3);
  CHECK(work->position_before == std::vector<std::int64_t>({7, 70}));
  CHECK(work->capacity >= 5000);
  CHECK(bench.table->units_held_by(1) == std::vector<std::uint64_t>{second});
  CHECK(!bench.table->withdraw_free(second));
  end.commit(*work, UnitStatus::kEnd, 2, 123, {10, 100});
  const Lease& lease = bench.table->at(second);
  CHECK(bench.table->state(lease) == UnitState::kCommitted);
  const Commit commit = bench.table->commit_of(lease);
  CHECK(commit.status == UnitStatus::kEnd);
  CHECK_EQ(commit.outputs, 2U);
  CHECK_EQ(commit.bytes, 123U);
  CHECK(commit.position_after == Position({10, 100}));
  CHECK_EQ(end.claim()->id, third);
}

void test_owned_unit_waits_for_owner() {
  Bench bench;
  const auto first = bench.publish(1, 2);
  const auto second = bench.publish(1, 2, first);
  WorkerEnd other(bench.region, -1, 0, 1);
  bench.region.cell(0).stop = 1;
  CHECK(!other.claim().has_value());
  WorkerEnd owner(bench.region, -1, 1, 1);
  auto work = owner.claim();
  CHECK(!work->continues_stream);
  owner.commit(*work, UnitStatus::kOk, 0, 0, {8, 80});
  work = owner.claim();
  CHECK_EQ(work->id, second);
  CHECK(work->continues_stream);

  // A new process has no live state, so it starts from position_before.
  Lease& lease = bench.table->at(second);
  ++lease.attempts;
  const Position after_first =
      bench.table->commit_of(bench.table->at(first)).position_after;
  CHECK(bench.table->make_claimable_again(lease, &after_first));
  WorkerEnd successor(bench.region, -1, 1, 1);
  work = successor.claim();
  CHECK_EQ(work->id, second);
  CHECK_EQ(work->attempt, 1U);
  CHECK(!work->continues_stream);
  CHECK(work->position_before == std::vector<std::int64_t>({8, 80}));
}

void test_need_is_granted_or_unit_lost() {
  Bench bench;
  const int notify_fd = eventfd(0, EFD_CLOEXEC);
  for (const bool grant : {true, false}) {
    const auto id = bench.publish(0);
    std::thread holder([&] {
      WorkerEnd end(bench.region, notify_fd, 0, 1);
      auto work = end.claim();
      CHECK_EQ(end.request_larger_slot(*work, 50'000), grant);
      if (!grant) return;
      CHECK(work->capacity >= 50'000);
      end.commit(*work, UnitStatus::kOk, 0, 50'000, {1, 1});
    });
    std::uint64_t count = 0;
    CHECK(read(notify_fd, &count, 8) == 8);
    CHECK(bench.table->units_waiting_for_memory() ==
          std::vector<std::uint64_t>{id});
    Lease& lease = bench.table->at(id);
    CHECK_EQ(bench.table->requested_bytes(lease), 50'000U);
    if (grant) {
      bench.table->grant(lease, bench.arena.take(50'000));
    } else {
      CHECK(!bench.table->withdraw(id));
      CHECK_EQ(bench.table->collect_withdrawn().size(), std::size_t{1});
    }
    holder.join();
    if (grant) bench.table->take(id);
  }
  CHECK(bench.table->all().empty());
}

void test_withdrawn_unit_is_collected_after_commit() {
  Bench bench;
  const auto id = bench.publish(0);
  WorkerEnd end(bench.region, -1, 0, 1);
  auto work = end.claim();
  CHECK(!bench.table->withdraw(id));
  CHECK(bench.table->collect_withdrawn().empty());
  end.commit(*work, UnitStatus::kOk, 0, 0, {1, 1});
  CHECK_EQ(bench.table->collect_withdrawn().size(), std::size_t{1});
  CHECK(bench.table->all().empty());
}

void test_positions_have_own_lengths() {
  for (const std::uint32_t capacity : {8U, 9U, 3000U}) {
    Bench bench(capacity);
    Position longest(capacity, 5);
    Lease lease;
    std::vector<Position> sent = {{1}, longest, {2, 3}};
    for (const Position& position : sent) {
      lease.slot = bench.arena.take(5000);
      CHECK(bench.table->publish(lease, position) != 0);
    }
    WorkerEnd end(bench.region, -1, 0, 1);
    for (Position position : sent) {
      auto work = end.claim();
      CHECK(work->position_before == position);
      std::ranges::reverse(position);
      position.resize(capacity + 1 - position.size(), -1);
      end.commit(*work, UnitStatus::kOk, 0, 0, position);
      CHECK(bench.table->commit_of(bench.table->at(work->id)).position_after ==
            position);
    }
  }
}

void test_poisoned_unit_is_not_claimed() {
  Bench bench;
  const auto id = bench.publish(0);
  WorkerEnd end(bench.region, -1, 0, 1);
  CHECK(end.claim().has_value());
  bench.table->poison(bench.table->at(id));
  bench.region.cell(1).stop = 1;
  CHECK(!WorkerEnd(bench.region, -1, 1, 1).claim().has_value());
  bench.table->take(id);
  CHECK(bench.table->has_room());
}

}  // namespace

int main() {
  test_unit_word_keeps_its_fields();
  test_oldest_unit_is_claimed_first();
  test_owned_unit_waits_for_owner();
  test_need_is_granted_or_unit_lost();
  test_withdrawn_unit_is_collected_after_commit();
  test_positions_have_own_lengths();
  test_poisoned_unit_is_not_claimed();
}
