#include "core/schedule/worker_end.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "core/base/futex.hpp"
#include "core/schedule/worker_counts.hpp"

namespace gristmill {

Result<std::unique_ptr<WorkerEnd>> WorkerEnd::open(int arena_fd, int notify_fd,
                                                   std::uint32_t worker,
                                                   std::uint32_t generation) {
  struct stat about{};
  if (fstat(arena_fd, &about) != 0) return Status::system(errno, "fstat");
  const auto bytes = static_cast<std::uint64_t>(about.st_size);
  if (bytes < sizeof(Control)) {
    return Status(Code::kInvalidArgument,
                  "arena_fd must be an arena, got a file of ", bytes, " bytes");
  }
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_NORESERVE, arena_fd, 0);
  if (base == MAP_FAILED) return Status::system(errno, "cannot map the arena");
  // User code may fork.  The child must not inherit the arena: it could still
  // write after the parent has reused this worker's slot.
  madvise(base, bytes, MADV_DONTFORK);
  const Region region(static_cast<std::byte*>(base));
  const Control& control = region.control();
  if (worker >= control.workers ||
      bytes < Region::head_bytes(control.workers, control.units,
                                 control.position_capacity)) {
    const Status status(Code::kInvalidArgument,
                        "arena_fd must be an arena with more than ", worker,
                        " workers, got a file of ", bytes, " bytes for ",
                        control.workers, " workers");
    munmap(base, bytes);
    return status;
  }
  auto end = std::make_unique<WorkerEnd>(region, notify_fd, worker, generation);
  end->mapped_bytes_ = bytes;
  end->arena_fd_ = fcntl(arena_fd, F_DUPFD_CLOEXEC, 0);
  return end;
}

WorkerEnd::WorkerEnd(Region region, int notify_fd, std::uint32_t worker,
                     std::uint32_t generation)
    : region_(region),
      notify_fd_(notify_fd),
      worker_(worker),
      generation_(generation),
      cell_(&region.cell(worker)),
      last_computed_(region.control().streams, 0) {}

WorkerEnd::~WorkerEnd() {
  if (arena_fd_ >= 0) close(arena_fd_);
  if (mapped_bytes_ != 0) munmap(region_.base(), mapped_bytes_);
}

std::optional<Work> WorkerEnd::claim() {
  std::atomic<std::uint32_t>& work_sequence = region_.control().work_sequence;
  Counts& counts = cell_->counts;
  const std::int64_t wait_start_ns = monotonic_ns();
  cell_->started.store(generation_, std::memory_order_release);
  for (;;) {
    // Read the sequence before checking: a later publish increments it.
    const std::uint32_t sequence =
        work_sequence.load(std::memory_order_seq_cst);
    if (cell_->stop.load(std::memory_order_acquire) != 0) return std::nullopt;
    // Claim nothing until the parent has admitted this process.  If it died
    // before that, the parent would not notice, and the unit would stay leased
    // forever.
    if (cell_->admitted.load(std::memory_order_acquire) == generation_) {
      if (auto work = try_claim()) {
        if (!refused_.contains(work->prev) && populate_slot(*work)) {
          const std::int64_t now_ns = monotonic_ns();
          add(counts.idle_ns, now_ns - wait_start_ns);
          counts.claimed_ns.store(now_ns, std::memory_order_relaxed);
          return work;
        }
        refuse(*work);
        continue;  // Other units may be free, without another wake-up.
      }
    }
    cell_->asleep.store(1, std::memory_order_seq_cst);
    futex_wait(&work_sequence, sequence);
    cell_->asleep.store(0, std::memory_order_seq_cst);
  }
}

// Returns the oldest unit that this worker may claim, as found by one scan.
WorkerEnd::FreeUnit WorkerEnd::find_oldest_free() const {
  FreeUnit oldest;
  const std::uint32_t units = region_.control().units;
  for (std::uint32_t i = 0; i < units; ++i) {
    Unit& unit = region_.unit(i);
    const UnitWord word{unit.word.load(std::memory_order_acquire)};
    if (word.state() != UnitState::kFree) continue;
    if (word.holder() != 0 && word.holder() != worker_ + 1) continue;
    if (oldest.unit != nullptr && word.id() > oldest.word.id()) continue;
    oldest = {&unit, word};
  }
  return oldest;
}

std::optional<Work> WorkerEnd::try_claim() {
  for (;;) {
    auto [unit, word] = find_oldest_free();
    if (unit == nullptr) return std::nullopt;
    // Units of one stream are published in order, but at arbitrary indices. The
    // scan may have passed the earlier unit's index too soon and still have
    // found the later unit.  A second scan, begun when the later unit is
    // visible, always finds the earlier one.  Only owned units need this order.
    if (word.holder() != 0 && find_oldest_free().word.id() != word.id()) {
      continue;
    }
    const UnitWord leased = word.with(UnitState::kLeased, worker_ + 1);
    if (unit->word.compare_exchange_strong(word.bits, leased.bits,
                                           std::memory_order_acq_rel,
                                           std::memory_order_relaxed)) {
      unit_ = unit;
      word_ = leased;
      cell_->current_record.store(-1, std::memory_order_relaxed);
      return held_work();
    }
  }
}

Work WorkerEnd::held_work() const {
  Work work{unit_->task};
  work.id = word_.id();
  work.attempt = word_.attempt();
  work.continues_stream =
      work.prev != 0 && last_computed_[work.stream] == work.prev;
  const std::int64_t* const position = region_.position_before(held_index());
  work.position_before.assign(position, position + unit_->position_before);
  work.slot = region_.base() + unit_->offset;
  work.capacity = unit_->capacity;
  return work;
}

bool WorkerEnd::request_larger_slot(Work& work, std::uint64_t bytes) {
  assert(unit_ != nullptr && word_.id() == work.id);
  unit_->requested_bytes = bytes;
  pending_word_ = word_.with(UnitState::kNeed, worker_ + 1);
  unit_->word.store(pending_word_.bits, std::memory_order_release);
  notify_parent();
  return wait_for_answer(work);
}

// Wakes the parent, which then looks for units in state kNeed or kPart.
void WorkerEnd::notify_parent() const noexcept {
  const std::uint64_t one = 1;
  while (write(notify_fd_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

// Waits until the parent changes the unit's word, and updates the slot of
// `work`.  Returns false if the unit is lost.
bool WorkerEnd::wait_for_answer(Work& work) {
  for (;;) {
    const UnitWord word{unit_->word.load(std::memory_order_acquire)};
    if (word.bits != pending_word_.bits) {
      // The parent resets the attempt count when it takes a part, so use the
      // count from `word`.
      const UnitWord granted = UnitWord::make(word_.id(), word.attempt(),
                                              UnitState::kGranted, worker_ + 1);
      if (word.bits != granted.bits) {  // The parent has withdrawn the unit.
        unit_ = nullptr;
        // This process may have advanced the stream past the unit's start.
        // With 0, the next unit seeks first.
        last_computed_[work.stream] = 0;
        count_busy();
        return false;
      }
      word_ = granted;
      work.slot = region_.base() + unit_->offset;
      work.capacity = unit_->capacity;
      if (populate_slot(work)) return true;
      refuse(work);
      return false;
    }
    // `unit_` stays set, since the worker exits after its next claim().  The
    // parent withdraws the unit when it sets `stop`.
    if (cell_->stop.load(std::memory_order_acquire) != 0) return false;
    // The low half contains the state; the parent always wakes this worker
    // after a change.
    futex_wait(&unit_->word, static_cast<std::uint32_t>(pending_word_.bits));
  }
}

bool WorkerEnd::is_awaited(const Work& work) const noexcept {
  const Control& control = region_.control();
  return control.waiting_for.load(std::memory_order_relaxed) == work.id;
}

bool WorkerEnd::can_resume() const noexcept {
  return unit_->word.load(std::memory_order_acquire) != pending_word_.bits;
}

bool WorkerEnd::resume(Work& work) {
  assert(unit_ != nullptr && word_.id() == work.id);
  if (!wait_for_answer(work)) return false;
  // If the unit now begins later, the parent took the part.
  if (unit_->task.first != work.first) count_outputs();
  static_cast<Task&>(work) = unit_->task;
  return true;
}

bool WorkerEnd::offer_part(const Work& work, std::uint32_t outputs,
                           std::uint64_t bytes,
                           const Position& position_after) {
  assert(unit_ != nullptr && word_.id() == work.id);
  assert(work.kind == UnitKind::kRange);
  if (!write_result(work, UnitStatus::kOk, outputs, bytes, position_after)) {
    return false;
  }
  pending_word_ = word_.with(UnitState::kPart, worker_ + 1);
  publish_word(work, pending_word_);
  notify_parent();
  return true;
}

// Allocates the slot's pages, because writing to a missing page raises SIGBUS
// if memory is exhausted.  Returns false if that fails.
bool WorkerEnd::populate_slot(const Work& work) {
  const std::uint64_t populated = unit_->populated;
  if (populated >= work.capacity) return true;
  // Store this first, so that the parent counts the pages even if this process
  // is killed while it allocates them.
  unit_->populated = work.capacity;
  if (region_.populate(work.slot + populated, work.capacity - populated,
                       arena_fd_)) {
    return true;
  }
  unit_->populated = populated;
  return false;
}

// Hands the unit back because memory is missing.  Any outputs are discarded,
// and the unit is computed again later.
void WorkerEnd::refuse(const Work& work) {
  unit_->status = UnitStatus::kNoMemory;
  unit_->outputs = 0;
  unit_->bytes = 0;
  // This process may have advanced the stream past the unit's start.  With 0,
  // the next unit seeks first.
  last_computed_[work.stream] = 0;
  if (work.kind == UnitKind::kSequential) refused_.insert(work.id);
  hand_over(work);
}

// Writes the holder's fields; returns false if there is no memory for the
// position.
bool WorkerEnd::write_result(const Work& work, UnitStatus status,
                             std::uint32_t outputs, std::uint64_t bytes,
                             const Position& position_after) {
  assert(bytes <= work.capacity);
  if (!region_.store(position_after, region_.position_after(held_index()),
                     arena_fd_)) {
    return false;
  }
  unit_->position_after = static_cast<std::uint32_t>(position_after.size());
  unit_->status = status;
  unit_->outputs = outputs;
  unit_->bytes = bytes;
  unit_->populated = std::max(unit_->populated, bytes);
  return true;
}

// Counts the outputs in the slot, which were handed to the parent.
void WorkerEnd::count_outputs() noexcept {
  add(cell_->counts.outputs, unit_->outputs);
  add(cell_->counts.bytes, static_cast<std::int64_t>(unit_->bytes));
}

void WorkerEnd::commit(const Work& work, UnitStatus status,
                       std::uint32_t outputs, std::uint64_t bytes,
                       const Position& position_after) {
  assert(unit_ != nullptr && word_.id() == work.id);
  if (!write_result(work, status, outputs, bytes, position_after)) {
    return refuse(work);
  }
  last_computed_[work.stream] = work.id;
  refused_.erase(work.id);
  unit_->duration_ns =
      monotonic_ns() - cell_->counts.claimed_ns.load(std::memory_order_relaxed);
  count_outputs();
  hand_over(work);
}

// Adds the time since the claim to busy_ns.  Called when the unit is committed,
// refused or withdrawn.
void WorkerEnd::count_busy() noexcept {
  Counts& counts = cell_->counts;
  const std::int64_t claimed_ns =
      counts.claimed_ns.load(std::memory_order_relaxed);
  if (claimed_ns == 0) return;  // The unit was refused immediately.
  add(counts.busy_ns, monotonic_ns() - claimed_ns);
  counts.claimed_ns.store(0, std::memory_order_relaxed);
}

void WorkerEnd::hand_over(const Work& work) noexcept {
  count_busy();
  publish_word(work, word_.with(UnitState::kCommitted, worker_ + 1));
  unit_ = nullptr;
}

// Publishes the unit's new word, and wakes the consumer if it waits for the
// unit.
void WorkerEnd::publish_word(const Work& work, UnitWord word) noexcept {
  Control& control = region_.control();
  unit_->word.store(word.bits, std::memory_order_release);
  control.done_sequence.fetch_add(1, std::memory_order_seq_cst);
  const auto awaited_id = control.waiting_for.load(std::memory_order_seq_cst);
  if (awaited_id == work.id || awaited_id == kAnyUnit) {
    futex_wake(&control.done_sequence, kAllSleepers);
  }
}

void WorkerEnd::publish_status(std::string_view text) noexcept {
  write_text(cell_->counts, text);
}

void WorkerEnd::set_startup_error(std::string_view text) noexcept {
  const std::size_t length = std::min<std::size_t>(text.size(), kErrorBytes);
  std::memcpy(cell_->error, text.data(), length);
  cell_->error_len.store(static_cast<std::uint32_t>(length),
                         std::memory_order_release);
}

}  // namespace gristmill
