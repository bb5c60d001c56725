// The half of the Scheduler that decides what is published and what becomes of
// the units of the dead.
#include <algorithm>
#include <cassert>
#include <utility>

#include "core/base/futex.hpp"
#include "core/schedule/scheduler.hpp"
#include "core/schedule/scheduler_state.hpp"

namespace gristmill {
namespace {

// The first guess of a unit's size, before one has been seen.
constexpr std::uint64_t kFirstGuess = std::uint64_t{1} << 20;
// Deaths in a row, before asking for work, that make a start hopeless.
constexpr std::uint32_t kStarts = 3;

}  // namespace

void Scheduler::fill() {
  if (forked_ || closed_) return;
  dirty_ = false;
  short_.reset();
  if (starved_) {
    starved_ = false;
    for (const std::uint64_t id : leases_.needy()) grant(id);
  }
  const std::size_t ahead = std::size_t{config_.workers} * (config_.buffer + 2);
  std::size_t count = 0;
  while (order_.pending() < ahead) {
    const int chosen = order_.choose();
    if (chosen < 0) break;
    if (!publish(static_cast<std::uint32_t>(chosen))) {
      dirty_ = true;
      break;
    }
    ++count;
  }
  // The stream awaited has a unit beyond any budget, or nothing would move.
  const int due = this->due();
  if (due >= 0) {
    const auto s = static_cast<std::uint32_t>(due);
    while (!order_.stream(s).open && order_.stream(s).pending.empty()) {
      if (publish(s)) {
        ++count;
      } else if (!shed()) {
        short_ = shortage(largest_ != 0 ? largest_ : kFirstGuess);
        dirty_ = true;
        break;
      }
    }
  }
  ring_work(count);
}

// Publishes the stream's next unit; false if there is no room for it.
bool Scheduler::publish(std::uint32_t s) {
  if (!leases_.has_room()) return false;
  // Units differ a little; an eighth more spares most of them a second slot.
  Slot* slot =
      arena_->take(largest_ != 0 ? largest_ + largest_ / 8 : kFirstGuess);
  if (slot == nullptr && largest_ != 0) slot = arena_->take(largest_);
  if (slot == nullptr) return false;
  Lease lease = order_.plan(s);
  lease.slot = slot;
  Vector vector = order_.stream(s).tail;
  if (!arithmetic()) lease.owner = s % config_.workers + 1;
  switch (config_.kind) {
    case UnitKind::kArithmetic:
      vector.front() = lease.first;
      break;
    case UnitKind::kOwned:
      vector = position_before(lease.prev, s);
      break;
    case UnitKind::kRequested:
      vector = order_.request(s);
      break;
  }
  const std::uint64_t id = leases_.publish(lease, vector);
  if (id == 0) {
    arena_->give_back(slot);
    return false;
  }
  order_.published(s, id, lease.count);
  return true;
}

// The position after unit `prev` of the stream if that is committed.  If it is
// not, its holder goes on from its live state and looks at no position.
Vector Scheduler::position_before(std::uint64_t prev, std::uint32_t s) {
  const Stream& stream = order_.stream(s);
  if (!stream.pending.empty() && prev != 0) {
    const auto found = leases_.all().find(prev);
    if (found != leases_.all().end() &&
        leases_.state(found->second) == UnitState::kCommitted &&
        !leases_.refused(found->second)) {
      Vector after = leases_.commit_of(found->second).vector_out;
      if (!after.empty()) return after;
    }
  }
  return stream.tail;
}

// Takes back the youngest unit that nobody works on to make room; false if
// there is none.  One that is committed will be computed a second time.
bool Scheduler::shed() {
  for (;;) {
    std::uint64_t youngest = 0;
    for (const Stream& stream : order_.streams()) {
      if (stream.pending.empty()) continue;
      const Lease& lease = leases_.at(stream.pending.back());
      if (lease.id == awaited_ || lease.id < youngest) continue;
      const UnitState state = leases_.state(lease);
      if (state == UnitState::kFree || state == UnitState::kCommitted) {
        youngest = lease.id;
      }
    }
    if (youngest == 0) return false;
    const Lease lease = leases_.at(youngest);
    if (leases_.state(lease) == UnitState::kCommitted) {
      arena_->settle(lease.slot, leases_.populated(lease));
      leases_.take(youngest);
    } else if (!leases_.withdraw_free(youngest)) {
      continue;  // A worker was faster.
    }
    order_.unpublished(lease);
    arena_->give_back(lease.slot);
    dirty_ = true;
    return true;
  }
}

// Gives a needy unit a larger slot; false if there is no room.
bool Scheduler::grant(std::uint64_t id) {
  Lease& lease = leases_.at(id);
  arena_->settle(lease.slot, leases_.populated(lease));
  const std::uint64_t needed = leases_.needed(lease);
  largest_ = std::max(largest_, std::min(needed, arena_->memory_limit()));
  // The content of the old slot is worth nothing, its room may be.
  arena_->give_back(lease.slot);
  Slot* const slot = arena_->take(needed);
  lease.starved = slot == nullptr;
  if (slot == nullptr) {
    lease.slot = arena_->take(1, true);
    starved_ = dirty_ = true;
    return false;
  }
  leases_.grant(lease, slot);
  return true;
}

// Whether the unit due can be computed only after some memory is found, and
// there is none.
bool Scheduler::stuck(const Lease& due) {
  if (!starved_) return false;
  for (;;) {
    std::uint64_t starved = 0;
    std::uint32_t waiting = 0;
    bool owner_waits = false;
    for (const auto& [id, lease] : leases_.all()) {
      if (!lease.starved) continue;
      ++waiting;
      owner_waits |= leases_.word(lease).holder() == due.owner;
      if (starved == 0 || id == due.id) starved = id;
    }
    const bool free = leases_.state(due) == UnitState::kFree;
    const bool nobody_left =
        due.owner != 0 ? owner_waits : waiting == config_.workers;
    if (!due.starved && !(free && nobody_left)) return false;
    if (grant(starved)) continue;
    if (shed()) continue;
    short_ = shortage(leases_.needed(leases_.at(starved)));
    return true;
  }
}

void Scheduler::collect() {
  for (const Lease& lease : leases_.collect_withdrawn()) {
    arena_->settle(lease.slot, lease.slot->capacity);
    arena_->give_back(lease.slot);
  }
}

Shortage Scheduler::shortage(std::uint64_t need) const {
  return {need, arena_->memory_limit(), arena_->charged(), arena_->kept_slots(),
          arena_->kept_bytes()};
}

void Scheduler::ring_work(std::size_t units) {
  if (units == 0) return;
  Control& control = region_.control();
  control.work_bell.fetch_add(1, std::memory_order_seq_cst);
  for (std::uint32_t w = 0; w < config_.workers; ++w) {
    if (region_.cell(w).asleep.load(std::memory_order_seq_cst) == 0) continue;
    // Any worker will do for a unit for anybody; its owner only for another.
    const std::size_t most = arithmetic() ? units : config_.workers;
    futex_wake(&control.work_bell,
               static_cast<int>(std::min<std::size_t>(most, kMaxWorkers)));
    return;
  }
}

void Scheduler::ring_all() {
  Control& control = region_.control();
  control.work_bell.fetch_add(1, std::memory_order_seq_cst);
  control.done_bell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(&control.work_bell, kEverybody);
  futex_wake(&control.done_bell, kEverybody);
}

void Scheduler::born(int worker, std::uint32_t generation, int pid) {
  const std::lock_guard lock(mutex_);
  Person& person = people_[static_cast<std::size_t>(worker)];
  if (forked_ || person.generation != generation) return;
  person.alive = true;
  person.pid = pid;
  region_.cell(static_cast<std::uint32_t>(worker))
      .admitted.store(generation, std::memory_order_release);
  ring_all();
}

void Scheduler::died(int worker, std::uint32_t generation) {
  bool hire = false;
  {
    const std::lock_guard lock(mutex_);
    Person& person = people_[static_cast<std::size_t>(worker)];
    if (forked_ || person.generation != generation) return;
    person.alive = false;
    person.overdue = 0;
    ++person.generation;
    Cell& cell = region_.cell(static_cast<std::uint32_t>(worker));
    hire = judge_start(worker, generation) && !closed_;
    if (config_.deaths_final && !closed_) {
      hire = false;
      if (!fatal_) fatal_ = death_of(worker, generation, nullptr);
    }
    free_units_of(worker, generation);
    if (config_.kind == UnitKind::kOwned) relink_streams_of(worker, generation);
    cell.admitted.store(0, std::memory_order_relaxed);
    cell.asleep.store(0, std::memory_order_relaxed);
    cell.at.store(-1, std::memory_order_relaxed);
    dirty_ = true;
    // A wake-up may have gone to the dead one; a commit may lack its ring.
    ring_all();
  }
  if (hire && hirer_ != nullptr) hirer_->hire(worker, generation + 1);
}

// Whether another process may do better than the one that died.
bool Scheduler::judge_start(int worker, std::uint32_t generation) {
  Person& person = people_[static_cast<std::size_t>(worker)];
  Cell& cell = region_.cell(static_cast<std::uint32_t>(worker));
  const std::uint32_t said =
      std::min(cell.error_len.load(std::memory_order_acquire), kErrorBytes);
  if (cell.started.load(std::memory_order_acquire) == generation && said == 0) {
    person.false_starts = 0;
    return true;
  }
  // A program that says what is wrong says the same the next time.
  if (++person.false_starts < kStarts && said == 0) return true;
  if (!fatal_) {
    Death death = death_of(worker, generation, nullptr);
    death.at_start = true;
    death.attempts = person.false_starts;
    death.text.assign(cell.error, said);
    fatal_ = std::move(death);
  }
  return false;
}

Death Scheduler::death_of(int worker, std::uint32_t generation,
                          const Lease* lease) const {
  Death death;
  death.worker = worker;
  death.generation = generation;
  const Person& person = people_[static_cast<std::size_t>(worker)];
  death.pid = person.pid;
  if (person.told_generation == generation) death.wait_status = person.told;
  if (lease != nullptr) {
    death.stream = static_cast<int>(lease->stream);
    death.attempts = lease->deaths;
    death.record = region_.cell(static_cast<std::uint32_t>(worker))
                       .at.load(std::memory_order_relaxed);
  }
  return death;
}

void Scheduler::free_units_of(int worker, std::uint32_t generation) {
  for (const std::uint64_t id :
       leases_.held_by(static_cast<std::uint32_t>(worker))) {
    Lease& lease = leases_.at(id);
    arena_->settle(lease.slot, leases_.populated(lease));
    ++lease.deaths;
    if (lease.withdrawn) {
      arena_->give_back(lease.slot);
      leases_.take(id);
    } else if (lease.deaths <= config_.max_restarts) {
      static_cast<void>(leases_.free_again(lease, nullptr));
    } else {
      leases_.doom(lease);
      doomed_.push_back({id, death_of(worker, generation, &lease)});
    }
  }
}

// Its successor has none of its live state: the first unit of each stream that
// is not committed starts from the position after the one before.
void Scheduler::relink_streams_of(int worker, std::uint32_t generation) {
  const auto streams = static_cast<std::uint32_t>(order_.streams().size());
  for (auto s = static_cast<std::uint32_t>(worker); s < streams;
       s += config_.workers) {
    Stream& stream = order_.stream(s);
    Vector position = stream.tail;
    for (std::size_t i = 0; i < stream.pending.size(); ++i) {
      Lease& lease = leases_.at(stream.pending[i]);
      if (leases_.state(lease) == UnitState::kCommitted &&
          !leases_.refused(lease)) {
        Vector after = leases_.commit_of(lease).vector_out;
        if (!after.empty()) position = std::move(after);
        continue;
      }
      if (!lease.doomed && !leases_.free_again(lease, &position)) {
        leases_.doom(lease);
        Death death = death_of(worker, generation, &lease);
        death.text = "There is no memory for the position to start again from.";
        doomed_.push_back({lease.id, std::move(death)});
      }
      if (!lease.doomed) {
        // The successor knows of no refusal, and computes these in order.
        while (++i < stream.pending.size()) {
          Lease& behind = leases_.at(stream.pending[i]);
          if (leases_.refused(behind)) {
            static_cast<void>(leases_.free_again(behind, nullptr));
          }
        }
        break;
      }
      // What follows a unit that will never be computed cannot be either.
      stream.sealed = true;
      while (stream.pending.back() != lease.id) {
        const Lease younger = leases_.at(stream.pending.back());
        leases_.withdraw(younger.id);
        order_.unpublished(younger);
        arena_->give_back(younger.slot);
      }
      break;
    }
  }
}

void Scheduler::how(int worker, std::uint32_t generation, int wait_status) {
  const std::lock_guard lock(mutex_);
  if (forked_) return;
  Person& person = people_[static_cast<std::size_t>(worker)];
  person.told_generation = generation;
  person.told = wait_status;
  const auto tell = [&](Death& death) {
    if (death.worker == worker && death.generation == generation) {
      death.wait_status = wait_status;
    }
  };
  for (auto& [id, death] : doomed_) tell(death);
  if (fatal_) tell(*fatal_);
  ring_all();
}

void Scheduler::knocked() {
  const std::lock_guard lock(mutex_);
  if (forked_) return;
  collect();
  if (closed_) return;
  bool starved = false;
  for (const std::uint64_t id : leases_.needy()) starved |= !grant(id);
  // The consumer may have to say that there is no memory.
  if (starved) ring_all();
}

void Scheduler::failed(std::string why) {
  const std::lock_guard lock(mutex_);
  if (forked_) return;
  crew_failed_ = true;
  if (!fatal_) {
    fatal_.emplace();
    fatal_->at_start = true;
    fatal_->text = std::move(why);
  }
  ring_all();
}

}  // namespace gristmill
