#include "core/schedule/scheduler.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <new>
#include <optional>
#include <utility>
#include <variant>

#include "core/base/at_fork.hpp"
#include "core/base/futex.hpp"

namespace gristmill {
namespace {

// The longest wait for a dead worker's wait status before its error is
// reported.
constexpr double kMaxStatusWait_s = 2.0;

// Maximum of workers * buffer.  Low, because each claim scans all units, and
// because all units are allocated at the start.
constexpr std::uint64_t kMaxBufferedUnits = std::uint64_t{1} << 20;

Status invalid_argument(std::string text) {
  return Status(Code::kInvalidArgument, std::move(text));
}

// Checks that there is room for a position or a request.
Status check_length(const char* name, const Position& position,
                    std::uint32_t capacity) {
  if (!position.empty() && position.size() <= capacity) return {};
  return invalid_argument(
      std::string(name) + " must have 1 to " + std::to_string(capacity) +
      " integers (position_capacity), got " + std::to_string(position.size()));
}

Status check_start(const SchedulerConfig& config, const RunPosition& start) {
  const std::size_t streams = config.lengths.size();
  if (start.positions.size() != streams || start.ended.size() != streams) {
    return invalid_argument(
        "positions and ended must have one entry for each of " +
        std::to_string(streams) + " streams, got " +
        std::to_string(start.positions.size()) + " and " +
        std::to_string(start.ended.size()));
  }
  if (start.next_stream >= streams) {
    return invalid_argument(
        "next_stream must be less than the number of streams, " +
        std::to_string(streams) + ", got " + std::to_string(start.next_stream));
  }
  for (const Position& position : start.positions) {
    Status status =
        check_length("each position", position, config.position_capacity);
    if (!status.ok()) return status;
    if (config.kind == UnitKind::kRange && position.front() < 0) {
      return invalid_argument("positions must begin with a record >= 0, got " +
                              std::to_string(position.front()));
    }
  }
  return {};
}

Status check_config(const SchedulerConfig& config) {
  const std::size_t streams = config.lengths.size();
  if (config.workers < 1 || config.workers > kMaxWorkers) {
    return invalid_argument("workers must be between 1 and " +
                            std::to_string(kMaxWorkers) + ", got " +
                            std::to_string(config.workers));
  }
  if (std::uint64_t{config.workers} * config.buffer > kMaxBufferedUnits) {
    return invalid_argument("workers * buffer must be at most " +
                            std::to_string(kMaxBufferedUnits) + ", got " +
                            std::to_string(config.workers) + " * " +
                            std::to_string(config.buffer));
  }
  if (config.unit_records < 1) {
    return invalid_argument("unit_records must be at least 1, got " +
                            std::to_string(config.unit_records));
  }
  // The unit's word has only 8 bits for the number of attempts.
  if (config.max_restarts > 100) {
    return invalid_argument("max_restarts must be at most 100, got " +
                            std::to_string(config.max_restarts));
  }
  if (streams < 1 || streams > (1U << 20)) {
    return invalid_argument(
        "lengths must have 1 to 1048576 entries, one per stream, got " +
        std::to_string(streams));
  }
  if (config.position_capacity < 1 ||
      config.position_capacity > kMaxPositionCapacity) {
    return invalid_argument(
        "position_capacity must be between 1 and 65536, got " +
        std::to_string(config.position_capacity));
  }
  return check_start(config, config.start);
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns the number of Units in the shared memory.
std::uint32_t unit_count_for(const SchedulerConfig& config) {
  // workers * (buffer + 2) units ahead, one withdrawn unit that each worker may
  // still hold, one due unit for each stream, and one spare.
  const std::uint64_t count =
      std::uint64_t{config.workers} * (config.buffer + 3) +
      config.lengths.size() + 1;
  return static_cast<std::uint32_t>(std::bit_ceil(count));
}

// Initializes the head of the arena (control block, worker cells, units) and
// returns a Region for it.
Region lay_out(const Arena& arena, const SchedulerConfig& config) {
  const std::uint32_t units = unit_count_for(config);
  const Region region(arena.base());
  Control& control = *new (arena.base()) Control{};
  control.owner = static_cast<std::uint32_t>(getpid());
  control.kind = config.kind;
  control.memory_limit = arena.memory_limit();
  control.workers = config.workers;
  control.units = units;
  control.streams = static_cast<std::uint32_t>(config.lengths.size());
  control.position_capacity = config.position_capacity;
  for (std::uint32_t w = 0; w < config.workers; ++w) {
    new (&region.cell(w)) WorkerCell{};
  }
  for (std::uint32_t i = 0; i < units; ++i) {
    new (&region.unit(i)) Unit{};
    // Region::store() allocates the pages of large positions on use.
    if (config.position_capacity > kSmallPosition) continue;
    std::fill_n(region.position_before(i), config.position_capacity, 0);
    std::fill_n(region.position_after(i), config.position_capacity, 0);
  }
  control.layout.store(kLayoutWord, std::memory_order_release);
  return region;
}

}  // namespace

// The schedulers of this process.  Their mutexes are held while it forks, so
// that a child's copies are consistent.  Lock order: Registry::mutex, then the
// mutex_ of any scheduler.
class Scheduler::Registry {
 public:
  static std::vector<Scheduler*>& schedulers() REQUIRES(mutex) {
    static auto* const schedulers = new std::vector<Scheduler*>;  // Leaked.
    return *schedulers;
  }

  static Mutex mutex;

 private:
  // The analysis cannot follow a lock from one function to another.
  static void before_fork() NO_THREAD_SAFETY_ANALYSIS {
    mutex.lock();
    for (Scheduler* scheduler : schedulers()) scheduler->mutex_.lock();
  }
  static void after_fork_in_parent() NO_THREAD_SAFETY_ANALYSIS {
    for (Scheduler* scheduler : schedulers()) {
      scheduler->arena_->retire_viewed();
      scheduler->mutex_.unlock();
    }
    mutex.unlock();
  }
  static void after_fork_in_child() NO_THREAD_SAFETY_ANALYSIS {
    for (Scheduler* scheduler : schedulers()) {
      scheduler->forked_ = true;
      scheduler->arena_->detach_after_fork();
      scheduler->mutex_.unlock();
    }
    mutex.unlock();
  }

  static const bool kRegistered;
};

Mutex Scheduler::Registry::mutex;
const bool Scheduler::Registry::kRegistered =
    at_fork(ForkStep::kSchedulers,
            {before_fork, after_fork_in_parent, after_fork_in_child});

Result<std::unique_ptr<Scheduler>> Scheduler::create(SchedulerConfig config) {
  if (Status status = check_config(config); !status.ok()) return status;
  const std::uint64_t head_bytes = Region::head_bytes(
      config.workers, unit_count_for(config), config.position_capacity);
  auto arena = Arena::create(head_bytes, config.memory_limit);
  if (!arena.ok()) return arena.status();
  return std::unique_ptr<Scheduler>(
      new Scheduler(std::move(config), std::move(arena).value()));
}

Scheduler::Scheduler(SchedulerConfig config, std::unique_ptr<Arena> arena)
    : config_(std::move(config)),
      arena_(std::move(arena)),
      region_(lay_out(*arena_, config_)),
      schedule_(config_, *arena_, region_) {
  const MutexLock lock(Registry::mutex);
  Registry::schedulers().push_back(this);
}

Scheduler::~Scheduler() {
  close();
  const MutexLock lock(Registry::mutex);
  std::erase(Registry::schedulers(), this);
}

ArenaSlot* Scheduler::slot_at(std::uintptr_t address) {
  const MutexLock lock(Registry::mutex);
  for (Scheduler* scheduler : Registry::schedulers()) {
    const MutexLock scheduler_lock(scheduler->mutex_);
    if (scheduler->forked_) continue;
    ArenaSlot* const slot = scheduler->arena_->viewed_slot_at(address);
    if (slot != nullptr) return slot;
  }
  return nullptr;
}

void Scheduler::start(WorkerStarter* starter) {
  starter_ = starter;
  {
    const MutexLock lock(mutex_);
    if (!is_over()) schedule_.fill();
  }
  if (starter == nullptr) return;
  // Not all workers start at once, so request those first whose outputs are due
  // first.
  for (std::uint32_t i = 0; i < config_.workers; ++i) {
    starter->start_worker(
        static_cast<int>((config_.start.next_stream + i) % config_.workers), 1);
  }
}

Status Scheduler::add_request(std::uint32_t stream, Position request) {
  if (config_.kind != UnitKind::kRequest || stream >= config_.lengths.size()) {
    return invalid_argument(
        "add_request() requires kind REQUEST and a stream less than " +
        std::to_string(config_.lengths.size()) + ", got stream " +
        std::to_string(stream));
  }
  Status status = check_length("request", request, config_.position_capacity);
  if (!status.ok()) return status;
  const MutexLock lock(mutex_);
  if (!is_over()) schedule_.add_request(stream, std::move(request));
  return {};
}

NextResult Scheduler::next(double timeout_s) {
  Control& control = region_.control();
  const auto start = Clock::now();
  std::optional<Clock::time_point> exit_found_at;
  MutexLock lock(mutex_);
  for (;;) {
    // Read the sequence before checking: a later commit increments it.
    const std::uint32_t sequence =
        control.done_sequence.load(std::memory_order_seq_cst);
    if (forked_) return {.kind = NextKind::kForked};
    if (closed_) return {.kind = NextKind::kClosed};
    double wait_s = timeout_s;
    // kNoUnit for a wait status, because on_exit_status() wakes everybody.
    std::uint64_t awaited_id = config_.in_order ? kNoUnit : kAnyUnit;
    const auto poll_result = schedule_.poll_next();
    if (const auto* const next = std::get_if<NextResult>(&poll_result)) {
      if (!next->lacks_wait_status()) return *next;
      if (!exit_found_at) exit_found_at = Clock::now();
      wait_s = kMaxStatusWait_s - seconds_since(*exit_found_at);
      if (wait_s <= 0) return *next;
    } else {
      const auto awaited = std::get<ScheduleState::AwaitedUnit>(poll_result);
      if (config_.in_order) awaited_id = awaited.id;
      if (timeout_s >= 0) wait_s = timeout_s - seconds_since(start);
      if (timeout_s >= 0 && wait_s <= 0) {
        if (auto timeout = schedule_.report_timeout(awaited)) {
          return *std::move(timeout);
        }
        continue;
      }
      if (const auto until_slow_s = schedule_.time_until_slow_s(awaited)) {
        if (*until_slow_s <= 0) {
          NextResult slow = schedule_.report_slow(awaited);
          slow.waited_s = seconds_since(start);
          return slow;
        }
        wait_s = wait_s < 0 ? *until_slow_s : std::min(wait_s, *until_slow_s);
      }
    }
    control.waiting_for.store(awaited_id, std::memory_order_seq_cst);
    lock.unlock();
    const int result = futex_wait(&control.done_sequence, sequence, wait_s);
    control.waiting_for.store(kNoUnit, std::memory_order_seq_cst);
    lock.lock();
    if (result == EINTR) return {.kind = NextKind::kInterrupted};
  }
}

void Scheduler::advance() {
  const MutexLock lock(mutex_);
  if (!is_over()) schedule_.advance();
}

ArenaSlot* Scheduler::add_view() {
  const MutexLock lock(mutex_);
  return is_over() ? nullptr : schedule_.add_view();
}

Status Scheduler::reset(const RunPosition& start) {
  if (Status status = check_start(config_, start); !status.ok()) return status;
  const MutexLock lock(mutex_);
  if (!is_over()) schedule_.restart(start);
  return {};
}

void Scheduler::close() {
  const MutexLock lock(mutex_);
  // A fork's copy must not communicate with the parent's workers.
  if (is_over()) return;
  closed_ = true;
  for (std::uint32_t w = 0; w < config_.workers; ++w) {
    region_.cell(w).stop.store(1, std::memory_order_release);
  }
  schedule_.clear();
  schedule_.wake_everybody();
}

void Scheduler::on_started(int worker, std::uint32_t generation, int pid) {
  const MutexLock lock(mutex_);
  if (!forked_) schedule_.on_started(worker, generation, pid);
}

void Scheduler::on_exited(int worker, std::uint32_t generation) {
  {
    const MutexLock lock(mutex_);
    if (forked_ || !schedule_.on_exited(worker, generation) || closed_) return;
  }
  if (starter_ != nullptr) starter_->start_worker(worker, generation + 1);
}

void Scheduler::on_exit_status(int worker, std::uint32_t generation,
                               int wait_status) {
  const MutexLock lock(mutex_);
  if (!forked_) schedule_.on_exit_status(worker, generation, wait_status);
}

void Scheduler::on_worker_notified() {
  const MutexLock lock(mutex_);
  if (!forked_) schedule_.on_worker_notified();
}

void Scheduler::on_failed(std::string why) {
  const MutexLock lock(mutex_);
  if (!forked_) schedule_.on_failed(std::move(why));
}

std::vector<WorkerCounts> Scheduler::counts() {
  {
    const MutexLock lock(mutex_);
    if (forked_) return {};
  }
  std::vector<WorkerCounts> counts;
  for (std::uint32_t w = 0; w < region_.control().workers; ++w) {
    counts.push_back(read_counts(region_.cell(w).counts));
  }
  return counts;
}

std::vector<Process> Scheduler::processes() {
  const MutexLock lock(mutex_);
  return schedule_.workers().processes();
}

RunPosition Scheduler::position() {
  const MutexLock lock(mutex_);
  return schedule_.order().position();
}

}  // namespace gristmill
