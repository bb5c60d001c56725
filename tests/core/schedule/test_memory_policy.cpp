// The MemoryPolicy when memory is short, step by step and without threads.
#include <memory>
#include <new>

#include "core/check.hpp"
#include "core/schedule/memory_policy.hpp"

using namespace gristmill;

namespace {

constexpr std::uint32_t kUnits = 8;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// One stream for each worker, and a limit of 4 MiB: four units of the initial
// size, which is 1 MiB.
struct Bench {
  explicit Bench(std::uint32_t streams, UnitKind kind = UnitKind::kRange)
      : arena(Arena::create(Region::head_bytes(streams, kUnits, 2), 4 * kMiB)
                  .value()),
        region(arena->base()),
        order(kind, 1, std::vector<std::int64_t>(streams, -1),
              {std::vector<Position>(streams, Position{0}), 0,
               std::vector<bool>(streams, false)}),
        workers(streams) {
    Control& control = *new (arena->base()) Control{};
    control.workers = control.streams = streams;
    control.units = kUnits;
    control.position_capacity = 2;
    for (std::uint32_t i = 0; i < kUnits; ++i) new (&region.unit(i)) Unit{};
    leases = std::make_unique<LeaseTable>(region, arena->fd());
    policy = std::make_unique<MemoryPolicy>(Region(arena->base()), *arena,
                                            *leases, order, workers);
  }

  // Publishes the stream's next unit.  Returns its id, or 0 if it does not fit.
  std::uint64_t publish(std::uint32_t stream, std::uint32_t owner = 0) {
    Lease lease = order.plan(stream);
    lease.owner = owner;
    lease.slot = policy->take_slot_for_next();
    if (lease.slot == nullptr) return 0;
    const std::uint64_t id = leases->publish(lease, {0});
    order.add_unit(stream, id, lease.count);
    return id;
  }

  // Writes the word of a unit like a worker.
  void set(std::uint64_t id, UnitState state, std::uint32_t worker) {
    const Lease& lease = leases->at(id);
    region.unit(lease.unit_index)
        .word.store(leases->word(lease).with(state, worker + 1).bits);
  }
  void need(std::uint64_t id, std::uint32_t worker, std::uint64_t bytes) {
    region.unit(leases->at(id).unit_index).requested_bytes = bytes;
    set(id, UnitState::kNeed, worker);
  }
  UnitState state(std::uint64_t id) { return leases->state(leases->at(id)); }

  std::unique_ptr<Arena> arena;
  Region region;
  Order order;
  std::uint32_t workers;
  std::unique_ptr<LeaseTable> leases;
  std::unique_ptr<MemoryPolicy> policy;
};

void test_slot_size_follows_used_bytes() {
  Bench bench(1);
  ArenaSlot* const first = bench.policy->take_slot_for_next();
  CHECK_EQ(first->capacity, kMiB);
  bench.policy->record_used(2 * kMiB);
  CHECK_EQ(bench.policy->shortage().needed_bytes, 2 * kMiB);
  ArenaSlot* const second = bench.policy->take_slot_for_next();
  CHECK_EQ(second->capacity, 2 * kMiB + kMiB / 4);
  CHECK(bench.policy->take_slot_for_next() == nullptr);
}

void test_need_is_granted_if_there_is_room() {
  Bench bench(1);
  const auto id = bench.publish(0);
  bench.need(id, 0, 3 * kMiB);
  CHECK(bench.policy->grant_all());
  CHECK(bench.state(id) == UnitState::kGranted);
  CHECK(bench.leases->at(id).slot->capacity >= 3 * kMiB);
}

void test_youngest_unclaimed_unit_is_evicted() {
  Bench bench(2);
  const auto first = bench.publish(0);
  const auto second = bench.publish(1);
  const auto third = bench.publish(0);
  const auto fourth = bench.publish(1);
  CHECK_EQ(bench.publish(0), 0U);
  bench.set(fourth, UnitState::kLeased, 0);
  CHECK(bench.policy->evict(0));
  CHECK(!bench.leases->all().contains(third));
  // Committed units are evicted, too.  A unit before a leased one is not.
  bench.set(first, UnitState::kCommitted, 1);
  CHECK(!bench.policy->evict(first));
  CHECK(bench.policy->evict(0));
  CHECK(bench.leases->all().contains(second));
  CHECK_EQ(bench.order.pending_count(), std::size_t{2});
  CHECK(!bench.policy->evict(0));
}

void test_waiting_unit_is_evicted_after_unclaimed() {
  Bench bench(2);
  const auto free = bench.publish(1);
  const auto waits = bench.publish(0);
  bench.need(waits, 0, 5 * kMiB);
  CHECK(bench.policy->evict(0));
  CHECK(!bench.leases->all().contains(free));
  CHECK(bench.policy->evict(0));
  CHECK(!bench.leases->all().contains(waits));
}

void test_claimed_request_is_not_evicted() {
  Bench bench(2, UnitKind::kRequest);
  bench.need(bench.publish(0, 1), 0, 5 * kMiB);
  CHECK(!bench.policy->evict(0));
}

void test_next_unit_gets_memory_of_others() {
  Bench bench(2);
  const auto due = bench.publish(0);
  const auto other = bench.publish(1);
  bench.publish(0);
  bench.publish(1);
  bench.set(other, UnitState::kLeased, 1);
  bench.need(due, 0, 2 * kMiB);
  CHECK(!bench.policy->grant_all());
  CHECK(bench.policy->has_waiting_holder());
  CHECK(!bench.policy->find_memory_for(bench.leases->at(due)).has_value());
  CHECK(bench.state(due) == UnitState::kGranted);
  CHECK(bench.leases->all().contains(other));
}

void test_free_next_unit_evicts_waiting_unit() {
  Bench bench(1);
  const auto due = bench.publish(0);
  const auto waiting = bench.publish(0);
  bench.need(waiting, 0, 5 * kMiB);
  CHECK(!bench.policy->grant_all());
  // The only worker waits for more memory than the limit.
  CHECK(!bench.policy->find_memory_for(bench.leases->at(due)).has_value());
  CHECK(!bench.leases->all().contains(waiting));
  CHECK(bench.leases->all().contains(due));
}

void test_unit_larger_than_limit_is_shortage() {
  Bench bench(1);
  const auto due = bench.publish(0);
  bench.need(due, 0, 5 * kMiB);
  CHECK(!bench.policy->grant_all());
  const auto missing = bench.policy->find_memory_for(bench.leases->at(due));
  CHECK_EQ(missing->needed_bytes, 5 * kMiB);
  CHECK_EQ(missing->limit_bytes, 4 * kMiB);
  CHECK(bench.leases->all().contains(due));
}

void test_free_unit_with_free_worker_evicts_nothing() {
  Bench bench(2);
  const auto due = bench.publish(0);
  const auto waiting = bench.publish(1);
  bench.need(waiting, 0, 5 * kMiB);
  CHECK(!bench.policy->grant_all());
  CHECK(!bench.policy->find_memory_for(bench.leases->at(due)).has_value());
  CHECK(bench.policy->has_waiting_holder());
}

void test_owned_unit_evicts_only_owners_unit() {
  for (const std::uint32_t worker : {0U, 1U}) {
    Bench bench(2, UnitKind::kSequential);
    const auto due = bench.publish(0, 1);
    const auto waiting = bench.publish(worker, worker + 1);
    bench.need(waiting, worker, 5 * kMiB);
    CHECK(!bench.policy->grant_all());
    CHECK(!bench.policy->find_memory_for(bench.leases->at(due)).has_value());
    CHECK_EQ(bench.leases->all().contains(waiting), worker == 1);
  }
}

void test_retry_refused_starts_at_given_unit() {
  Bench bench(1, UnitKind::kSequential);
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(bench.publish(0, 1));
  for (const std::size_t i : {0U, 2U}) {
    bench.region.unit(bench.leases->at(ids[i]).unit_index).status =
        UnitStatus::kNoMemory;
    bench.set(ids[i], UnitState::kCommitted, 0);
  }
  bench.set(ids[1], UnitState::kLeased, 0);
  const Position begins = {7};
  bench.policy->retry_refused(bench.order.stream(0), 0, &begins);
  CHECK(bench.state(ids[0]) == UnitState::kFree);
  CHECK(bench.state(ids[1]) == UnitState::kLeased);
  CHECK(bench.state(ids[2]) == UnitState::kFree);
  CHECK_EQ(*bench.region.position_before(bench.leases->at(ids[0]).unit_index),
           7);
  CHECK_EQ(*bench.region.position_before(bench.leases->at(ids[2]).unit_index),
           0);
}

}  // namespace

int main() {
  test_slot_size_follows_used_bytes();
  test_need_is_granted_if_there_is_room();
  test_youngest_unclaimed_unit_is_evicted();
  test_waiting_unit_is_evicted_after_unclaimed();
  test_claimed_request_is_not_evicted();
  test_next_unit_gets_memory_of_others();
  test_free_next_unit_evicts_waiting_unit();
  test_unit_larger_than_limit_is_shortage();
  test_free_unit_with_free_worker_evicts_nothing();
  test_owned_unit_evicts_only_owners_unit();
  test_retry_refused_starts_at_given_unit();
}
