#include "core/schedule/scheduler.hpp"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <new>
#include <string>

#include "core/base/futex.hpp"
#include "core/schedule/scheduler_state.hpp"

namespace gristmill {
namespace {

// How long an error waits for the wait status of the worker it is about.
constexpr double kStatusWait_s = 2.0;

// Timeouts after which a worker that was born and asks for no work is late.
constexpr std::uint32_t kLongestStart = 4;

// A claim looks at every unit, and every unit has pages from the start.
constexpr std::uint64_t kMostAhead = std::uint64_t{1} << 20;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

std::uint32_t cells_for(const SchedulerConfig& config) {
  // The look-ahead; a unit of each stream beyond it; a withdrawn unit in the
  // hands of each worker; one to spare.
  const std::uint64_t cells =
      std::uint64_t{config.workers} * (config.buffer + 3) +
      config.lengths.size() + 1;
  return static_cast<std::uint32_t>(std::bit_ceil(cells));
}

Region lay_out(const Arena& arena, const SchedulerConfig& config,
               std::uint32_t units) {
  const Region region(arena.base());
  Control& control = *new (arena.base()) Control{};
  control.bytes = arena.bytes();
  control.workers = config.workers;
  control.units = units;
  control.streams = static_cast<std::uint32_t>(config.lengths.size());
  control.vector_capacity = config.vector_capacity;
  for (std::uint32_t w = 0; w < config.workers; ++w) {
    new (&region.cell(w)) Cell{};
  }
  for (std::uint32_t i = 0; i < units; ++i) {
    new (&region.unit(i)) Unit{};
    if (config.vector_capacity > kSmallVector) continue;
    std::fill_n(region.vector_in(i), config.vector_capacity, 0);
    std::fill_n(region.vector_out(i), config.vector_capacity, 0);
  }
  return region;
}

Status check_config(const SchedulerConfig& config) {
  const auto wrong = [](const char* text) {
    return Status(Code::kInvalidArgument, text);
  };
  if (config.workers < 1 || config.workers > kMaxWorkers) {
    return wrong("workers must be between 1 and 4094");
  }
  if (config.kind != UnitKind::kArithmetic && config.kind != UnitKind::kOwned &&
      config.kind != UnitKind::kRequested) {
    return wrong("kind must be 'A', 'C' or 'R'");
  }
  if (std::uint64_t{config.workers} * config.buffer > kMostAhead) {
    return wrong("workers times buffer must be at most 2^20");
  }
  if (config.unit_records < 1) return wrong("unit_records must be positive");
  if (config.max_restarts > 100) return wrong("max_restarts must be <= 100");
  const std::size_t streams = config.lengths.size();
  if (streams < 1 || streams > (1U << 20)) return wrong("no streams, or many");
  if (config.starts.size() != streams || config.ended.size() != streams) {
    return wrong("lengths, starts and ended must have one entry per stream");
  }
  if (config.turn >= streams) return wrong("turn must name a stream");
  if (config.vector_capacity < 1 ||
      config.vector_capacity > kMaxVectorCapacity) {
    return wrong("vector_capacity must be between 1 and 65536");
  }
  for (const Vector& start : config.starts) {
    if (start.empty() || start.size() > config.vector_capacity) {
      return Status(Code::kInvalidArgument,
                    "a position has " + std::to_string(start.size()) +
                        " integers; expected 1 to vector_capacity, which is " +
                        std::to_string(config.vector_capacity));
    }
    if (config.kind == UnitKind::kArithmetic && start.front() < 0) {
      return wrong("a position must not be negative");
    }
  }
  return {};
}

}  // namespace

// Keeps schedulers consistent over fork(): their mutexes are held while the
// address space is copied.
class ForkGuard {
 public:
  static ForkGuard& get() {
    static ForkGuard* const guard = [] {
      auto* const made = new ForkGuard;
      pthread_atfork([] { get().prepare(); }, [] { get().parent(); },
                     [] { get().child(); });
      return made;
    }();
    return *guard;
  }

  void add(Scheduler* scheduler) {
    const std::lock_guard lock(mutex_);
    all_.push_back(scheduler);
  }
  void remove(Scheduler* scheduler) {
    const std::lock_guard lock(mutex_);
    std::erase(all_, scheduler);
  }
  Slot* slot_at(std::uintptr_t address) {
    const std::lock_guard lock(mutex_);
    for (Scheduler* scheduler : all_) {
      const std::lock_guard one(scheduler->mutex_);
      if (scheduler->forked_) continue;
      Slot* const slot = scheduler->arena_->shown_at(address);
      if (slot != nullptr) return slot;
    }
    return nullptr;
  }

 private:
  void prepare() {
    mutex_.lock();
    for (Scheduler* scheduler : all_) scheduler->mutex_.lock();
  }
  void parent() {
    for (Scheduler* scheduler : all_) {
      scheduler->arena_->retire_out();
      scheduler->mutex_.unlock();
    }
    mutex_.unlock();
  }
  void child() {
    for (Scheduler* scheduler : all_) {
      scheduler->forked_ = true;
      scheduler->arena_->forget();
      scheduler->mutex_.unlock();
    }
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<Scheduler*> all_;
};

Result<std::unique_ptr<Scheduler>> Scheduler::create(SchedulerConfig config) {
  if (Status status = check_config(config); !status.ok()) return status;
  const std::uint64_t head_bytes = Region::head_bytes(
      config.workers, cells_for(config), config.vector_capacity);
  auto arena = Arena::create(head_bytes, config.memory_limit);
  if (!arena.ok()) return arena.status();
  return std::unique_ptr<Scheduler>(
      new Scheduler(std::move(config), std::move(arena).value()));
}

Scheduler::Scheduler(SchedulerConfig config, std::unique_ptr<Arena> arena)
    : config_(std::move(config)),
      arena_(std::move(arena)),
      region_(lay_out(*arena_, config_, cells_for(config_))),
      leases_(region_, arena_->fd()),
      order_(config_.kind, config_.unit_records, config_.lengths,
             config_.starts, config_.turn, config_.ended),
      people_(config_.workers),
      opened_(config_.lengths.size()) {
  ForkGuard::get().add(this);
}

Scheduler::~Scheduler() {
  close();
  ForkGuard::get().remove(this);
  for (auto& unit : opened_) {
    if (unit != nullptr && unit->slot != nullptr) release_view(unit->slot);
  }
  for (const auto& [id, lease] : leases_.all()) arena_->give_back(lease.slot);
}

Slot* Scheduler::slot_at(std::uintptr_t address) {
  return ForkGuard::get().slot_at(address);
}

void Scheduler::start(Hirer* hirer) {
  hirer_ = hirer;
  {
    const std::lock_guard lock(mutex_);
    for (Person& person : people_) person.generation = 1;
    fill();
  }
  if (hirer == nullptr) return;
  // Those whose outputs are due first come first: not all begin at once.
  for (std::uint32_t i = 0; i < config_.workers; ++i) {
    hirer->hire(static_cast<int>((config_.turn + i) % config_.workers), 1);
  }
}

Status Scheduler::ask(std::uint32_t stream, Vector request) {
  if (config_.kind != UnitKind::kRequested || stream >= opened_.size()) {
    return Status(Code::kInvalidArgument,
                  "nothing can be asked of this stream");
  }
  if (request.empty() || request.size() > config_.vector_capacity) {
    return Status(Code::kInvalidArgument,
                  "a request has " + std::to_string(request.size()) +
                      " integers; expected 1 to vector_capacity, which is " +
                      std::to_string(config_.vector_capacity));
  }
  const std::lock_guard lock(mutex_);
  if (forked_ || closed_) return {};
  order_.ask(stream, std::move(request));
  fill();
  return {};
}

Next Scheduler::next(double timeout_s) {
  Control& control = region_.control();
  const auto began = Clock::now();
  std::optional<Clock::time_point> lost;  // when the death due was seen
  std::unique_lock lock(mutex_);
  for (;;) {
    // Read the bell, then look: a commit after the look rings it.
    const std::uint32_t seen =
        control.done_bell.load(std::memory_order_seq_cst);
    Next next;
    double wait_s = timeout_s;
    if (look(next)) {
      const bool status_may_come = next.kind == NextKind::kDied &&
                                   next.death.worker >= 0 &&
                                   !next.death.wait_status && !crew_failed_;
      if (!status_may_come) return next;
      if (!lost) lost = Clock::now();
      wait_s = kStatusWait_s - seconds_since(*lost);
      if (wait_s <= 0) return next;
    } else if (timeout_s >= 0) {
      wait_s = timeout_s - seconds_since(began);
      if (wait_s <= 0) {
        const Lease& due = leases_.at(awaited_);
        if (is_done(due.stream)) continue;
        // A worker that is stopped may have taken the wake-up of another.
        ring_all();
        next.kind = NextKind::kTimeout;
        next.death = awaited_worker();
        return next;
      }
    }
    control.waiting_for.store(config_.in_order ? awaited_ : kAnyUnit,
                              std::memory_order_seq_cst);
    lock.unlock();
    const int result = futex_wait(&control.done_bell, seen, wait_s);
    control.waiting_for.store(0, std::memory_order_seq_cst);
    if (result == EINTR) {
      next.kind = NextKind::kInterrupted;
      return next;
    }
    lock.lock();
  }
}

// Who keeps the unit awaited: its holder; of a free unit an idle worker that
// may take it, else the one that is busy for longest.  Nobody, while a worker
// that may take it is on its way, unless that takes several timeouts.
Death Scheduler::awaited_worker() {
  const Lease& due = leases_.all().at(awaited_);
  Death death;
  death.stream = static_cast<int>(due.stream);
  const Lease* held = &due;
  if (leases_.state(due) == UnitState::kFree) {
    held = nullptr;
    int idle = -1;
    bool coming = false;
    for (std::uint32_t w = 0; w < config_.workers; ++w) {
      if (due.owner != 0 && due.owner != w + 1) continue;
      Person& person = people_[w];
      const auto started =
          region_.cell(w).started.load(std::memory_order_acquire);
      if (!person.alive ||
          (started != person.generation && ++person.overdue < kLongestStart)) {
        coming = true;
        continue;
      }
      const std::vector<std::uint64_t> units = leases_.held_by(w);
      if (units.empty()) {
        idle = static_cast<int>(w);
      } else if (held == nullptr || units.front() < held->id) {
        held = &leases_.all().at(units.front());
      }
    }
    if (idle >= 0) {
      death.worker = idle;
      death.idle = true;
      return death;
    }
    if (coming) return death;
  }
  const std::uint32_t holder = leases_.word(*held).holder();
  if (holder == 0) return death;
  death.worker = static_cast<int>(holder) - 1;
  death.stream = static_cast<int>(held->stream);
  death.record = region_.cell(holder - 1).at.load(std::memory_order_relaxed);
  return death;
}

// The stream whose output is due, or -1: where order does not matter one that
// has an output, if there is one, else one that will.
int Scheduler::due() {
  if (config_.in_order) return order_.due();
  const auto count = static_cast<std::uint32_t>(opened_.size());
  const auto turn_to_any = [&](auto&& wanted) {
    for (std::uint32_t n = 0; n < count; ++n) {
      const std::uint32_t s = (order_.turn() + n) % count;
      if (!wanted(s)) continue;
      order_.turn_to(s);
      return true;
    }
    return false;
  };
  if (turn_to_any([&](auto s) { return is_done(s); }) ||
      turn_to_any([&](auto s) { return !order_.stream(s).pending.empty(); }) ||
      turn_to_any([&](auto s) { return order_.has_more(s); })) {
    return static_cast<int>(order_.turn());
  }
  return order_.due();
}

// Whether there is an output of the stream, or nothing to wait for.
bool Scheduler::is_done(std::uint32_t s) const {
  if (opened_[s] != nullptr) return true;
  const Stream& stream = order_.streams()[s];
  if (stream.pending.empty()) return false;
  const Lease& lease = leases_.all().at(stream.pending.front());
  return lease.doomed || leases_.state(lease) == UnitState::kCommitted;
}

// Returns true if `next` is the answer, false if awaited_ is to be waited for.
bool Scheduler::look(Next& next) {
  awaited_ = 0;
  if (forked_ || closed_) {
    next.kind = forked_ ? NextKind::kForked : NextKind::kClosed;
    return true;
  }
  arena_->sweep(false);
  collect();
  for (;;) {
    if (dirty_) fill();
    const int due = this->due();
    if (due < 0) {
      next.kind = NextKind::kEnd;
      return true;
    }
    const auto s = static_cast<std::uint32_t>(due);
    if (opened_[s] != nullptr) {
      next.kind = NextKind::kOutput;
      describe(*opened_[s], next.output);
      next.output.stream = s;
      return true;
    }
    const Stream& stream = order_.stream(s);
    if (!stream.pending.empty()) {
      Lease& lease = leases_.at(stream.pending.front());
      if (leases_.state(lease) == UnitState::kCommitted) {
        if (leases_.refused(lease)) {
          retry_refused(stream);  // Once the caller knows, somebody does.
          next.kind = NextKind::kFull;
          next.shortage = shortage(lease.slot->capacity);
          return true;
        }
        if (open(s)) continue;
        next.kind = NextKind::kDied;
        next.death.stream = due;
        next.death.text = "a worker committed a unit that cannot be read";
        return true;
      }
      if (lease.doomed) {
        next.kind = NextKind::kDied;
        for (const auto& [id, death] : doomed_) {
          if (id == lease.id) next.death = death;
        }
        return true;
      }
      awaited_ = lease.id;
      if (!fatal_ && !stuck(lease)) return false;
    }
    if (fatal_) {
      next.kind = NextKind::kDied;
      next.death = *fatal_;
      return true;
    }
    next.kind = NextKind::kFull;
    next.shortage = short_.value_or(Shortage{});
    dirty_ = true;
    return true;
  }
}

// Frees the units of a stream that there was no memory for.
// REQUIRES: the oldest one is among them.
void Scheduler::retry_refused(const Stream& stream) {
  const bool linked = config_.kind == UnitKind::kOwned;
  const Vector* begins = linked ? &stream.tail : nullptr;
  for (const std::uint64_t id : stream.pending) {
    Lease& lease = leases_.at(id);
    if (leases_.refused(lease) && !leases_.free_again(lease, begins)) break;
    begins = nullptr;  // The others begin where the one before them ends.
  }
  ring_all();
}

void Scheduler::describe(const Opened& unit, Output& output) const {
  output.error = (unit.outputs[unit.index].flags & kOutputError) != 0;
  output.unit = unit.id;
  output.index = unit.index;
  output.count = static_cast<std::uint32_t>(unit.outputs.size());
  output.address =
      reinterpret_cast<std::uint64_t>(arena_->base() + unit.slot->offset);
  output.bytes = unit.bytes;
}

// Opens the stream's oldest unit, which is committed.  False if it is corrupt.
bool Scheduler::open(std::uint32_t s) {
  Stream& stream = order_.stream(s);
  const Lease lease = leases_.at(stream.pending.front());
  const Commit commit = leases_.commit_of(lease);
  auto unit = std::make_unique<Opened>();
  unit->id = lease.id;
  unit->bytes = commit.bytes;
  if (commit.bytes > lease.slot->capacity || commit.vector_out.empty()) {
    return false;
  }
  if (commit.outputs > 0) {
    const std::span slot(arena_->base() + lease.slot->offset, commit.bytes);
    if (!read_outputs(slot, commit.outputs, config_.vector_capacity,
                      unit->outputs)) {
      return false;
    }
  }
  arena_->settle(lease.slot, leases_.populated(lease));
  largest_ = std::max(largest_, commit.bytes);
  // Starts fail in a row only where nobody gets anything done meanwhile.
  for (Person& person : people_) person.false_starts = 0;
  leases_.take(lease.id);
  order_.opened(s);
  stream.tail = commit.vector_out;
  dirty_ = true;
  if (commit.outputs > 0) {
    unit->slot = lease.slot;
    arena_->show(lease.slot);
  } else {
    arena_->give_back(lease.slot);
  }
  if (commit.status == UnitStatus::kEnd) {
    stream.sealed = true;
    withdraw_stream(s);
  } else if (commit.status != UnitStatus::kOk && arithmetic()) {
    withdraw_stream(s);
    order_.restart(s, commit.vector_out.front());
  }
  opened_[s] = std::move(unit);
  if (commit.outputs == 0) close_unit(s);
  return true;
}

void Scheduler::close_unit(std::uint32_t s) {
  order_.stream(s).open = false;
  if (opened_[s]->slot != nullptr) release_view(opened_[s]->slot);
  opened_[s] = nullptr;
}

void Scheduler::withdraw_stream(std::uint32_t s) {
  Stream& stream = order_.stream(s);
  for (const std::uint64_t id : stream.pending) {
    Slot* const slot = leases_.at(id).slot;
    std::erase_if(doomed_, [&](const auto& pair) { return pair.first == id; });
    if (leases_.withdraw(id)) arena_->give_back(slot);
  }
  order_.restart(s, stream.next_first);
}

void Scheduler::advance() {
  const std::lock_guard lock(mutex_);
  const std::uint32_t s = order_.turn();
  if (opened_[s] == nullptr) return;
  Opened& unit = *opened_[s];
  order_.stream(s).position = unit.outputs[unit.index].vector;
  if (++unit.index == unit.outputs.size()) close_unit(s);
  order_.step();
}

Slot* Scheduler::hold() {
  const std::lock_guard lock(mutex_);
  const auto& unit = opened_[order_.turn()];
  if (unit == nullptr) return nullptr;
  retain_view(unit->slot);
  return unit->slot;
}

void Scheduler::clear_units() {
  for (std::uint32_t s = 0; s < opened_.size(); ++s) {
    if (opened_[s] != nullptr) close_unit(s);
    withdraw_stream(s);
  }
  collect();
}

Status Scheduler::reset(const std::vector<Vector>& positions,
                        std::uint32_t turn, const std::vector<bool>& ended) {
  SchedulerConfig config = config_;
  config.starts = positions;
  config.turn = turn;
  config.ended = ended;
  if (Status status = check_config(config); !status.ok()) return status;
  const std::lock_guard lock(mutex_);
  if (forked_ || closed_) return {};
  clear_units();
  order_ = Order(config_.kind, config_.unit_records, config_.lengths, positions,
                 turn, ended);
  fill();
  return {};
}

void Scheduler::close() {
  const std::lock_guard lock(mutex_);
  // A fork's copy must not speak to the parent's workers.
  if (forked_ || closed_) return;
  closed_ = true;
  for (std::uint32_t w = 0; w < config_.workers; ++w) {
    region_.cell(w).stop.store(1, std::memory_order_release);
  }
  clear_units();
  ring_all();
}

std::vector<Process> Scheduler::processes() {
  const std::lock_guard lock(mutex_);
  std::vector<Process> all;
  for (const Person& person : people_) {
    Process process{person.pid, person.alive, std::nullopt};
    if (!person.alive && person.told_generation + 1 == person.generation) {
      process.wait_status = person.told;
    }
    all.push_back(process);
  }
  return all;
}

std::vector<Vector> Scheduler::vectors() {
  const std::lock_guard lock(mutex_);
  std::vector<Vector> all;
  for (const Stream& stream : order_.streams()) all.push_back(stream.position);
  return all;
}

std::uint32_t Scheduler::turn() {
  const std::lock_guard lock(mutex_);
  return order_.turn();
}

std::vector<bool> Scheduler::ended() {
  const std::lock_guard lock(mutex_);
  std::vector<bool> all;
  for (const Stream& stream : order_.streams()) all.push_back(stream.ended);
  return all;
}

}  // namespace gristmill
