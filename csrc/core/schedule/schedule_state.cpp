#include "core/schedule/schedule_state.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "core/base/futex.hpp"

namespace gristmill {

ScheduleState::ScheduleState(const SchedulerConfig& config, Arena& arena,
                             Region region)
    : config_(config),
      arena_(arena),
      region_(region),
      leases_(region, arena.fd()),
      order_(config.kind, config.unit_records, config.lengths, config.start),
      memory_(region, arena_, leases_, order_, config.workers),
      workers_(region, config.workers),
      pace_(config.slow_s),
      open_units_(config.lengths.size()) {}

ScheduleState::~ScheduleState() {
  for (auto& unit : open_units_) {
    if (unit != nullptr) release_view(unit->slot);
  }
  for (const auto& [id, lease] : leases_.all()) {
    arena_.give_back(lease.slot);
    for (const Part& part : lease.parts) arena_.give_back(part.slot);
  }
}

void ScheduleState::fill() {
  if (memory_.has_waiting_holder()) memory_.grant_all();
  needs_fill_ = false;
  const std::size_t max_pending =
      std::size_t{config_.workers} * (config_.buffer + 2);
  std::size_t published_count = 0;
  while (order_.pending_count() < max_pending) {
    const int stream = order_.stream_to_publish();
    if (stream < 0) break;
    if (!publish(static_cast<std::uint32_t>(stream))) {
      needs_fill_ = true;
      break;
    }
    ++published_count;
  }
  wake_workers(published_count);
}

// Publishes the stream's next unit regardless of the number of pending units.
// Evicts other units until it fits.  Returns false if that is not enough.
bool ScheduleState::publish_with_eviction(std::uint32_t s) {
  while (!publish(s)) {
    if (!memory_.evict(0)) return false;
    needs_fill_ = true;
  }
  wake_workers(1);
  return true;
}

// Publishes the stream's next unit; returns false if it does not fit.
bool ScheduleState::publish(std::uint32_t s) {
  if (!leases_.has_room()) return false;
  ArenaSlot* const slot = memory_.take_slot_for_next();
  if (slot == nullptr) return false;
  const Stream& stream = order_.stream(s);
  Lease lease = order_.plan(s);
  lease.slot = slot;
  if (!is_range()) lease.owner = s % config_.workers + 1;
  Position position = config_.kind == UnitKind::kRequest
                          ? order_.request(s)
                          : position_before_next_unit(stream);
  if (is_range()) position.front() = lease.first;  // The record to start from.
  const std::uint64_t id = leases_.publish(lease, position);
  if (id == 0) {
    arena_.give_back(slot);
    return false;
  }
  order_.add_unit(s, id, lease.count);
  return true;
}

// Returns the position before the stream's next unit.  If the previous unit is
// not computed yet, the stream's owner ignores this and uses its own state.
Position ScheduleState::position_before_next_unit(const Stream& stream) const {
  if (is_range() || stream.pending.empty()) return stream.opened_position;
  const Lease& previous = leases_.all().at(stream.pending.back());
  if (!leases_.is_computed(previous)) return stream.opened_position;
  Position position = leases_.commit_of(previous).position_after;
  return position.empty() ? stream.opened_position : position;
}

// Returns true if an output is open, or can be opened without waiting.
bool ScheduleState::is_ready(std::uint32_t s) const {
  if (open_units_[s] != nullptr) return true;
  if (!is_published(s)) return false;
  const auto& oldest = leases_.all().at(order_.streams()[s].pending.front());
  const UnitState state = leases_.state(oldest);
  return oldest.poisoned || !oldest.parts.empty() ||
         state == UnitState::kCommitted || state == UnitState::kPart;
}

// Selects the stream to deliver from next and returns it; -1 if all have ended.
// If outputs may be delivered out of order, prefers a ready output, then a
// published unit, then a stream with more units.  Ties go to the next in turn.
int ScheduleState::select_next_stream() {
  if (config_.in_order) return order_.select_next_stream();
  constexpr int kNothing = 3;
  const auto rank_of = [this](std::uint32_t s) {
    if (is_ready(s)) return 0;
    if (is_published(s)) return 1;
    return order_.has_more(s) ? 2 : kNothing;
  };
  int best_rank = kNothing;
  const std::uint32_t first = order_.next_stream();
  const auto count = static_cast<std::uint32_t>(open_units_.size());
  for (std::uint32_t n = 0; n < count && best_rank > 0; ++n) {
    const std::uint32_t s = (first + n) % count;
    const int rank = rank_of(s);
    if (rank < best_rank) order_.set_next_stream(s);
    best_rank = std::min(best_rank, rank);
  }
  if (best_rank == kNothing) return order_.select_next_stream();
  return static_cast<int>(order_.next_stream());
}

ScheduleState::PollResult ScheduleState::poll_next() {
  const auto full_result = [](const Shortage& shortage) {
    return NextResult{.kind = NextKind::kFull, .shortage = shortage};
  };
  const auto wait_or_full = [&](const Shortage& shortage) -> PollResult {
    if (leases_.has_running_unit()) return AwaitedUnit{kAnyUnit};
    return full_result(shortage);
  };
  const auto exited_result = [](const WorkerReport& report) {
    return NextResult{.kind = NextKind::kExited, .report = report};
  };
  arena_.reclaim();
  free_withdrawn_slots();
  for (;;) {
    if (needs_fill_ || memory_.has_waiting_holder()) fill();
    const int next_stream = select_next_stream();
    if (next_stream < 0) return NextResult{.kind = NextKind::kEnd};
    const auto s = static_cast<std::uint32_t>(next_stream);
    if (open_units_[s] != nullptr) return output_result(s);
    if (!is_published(s) && !publish_with_eviction(s)) {
      if (workers_.fatal()) return exited_result(*workers_.fatal());
      return wait_or_full(memory_.shortage());
    }
    const Stream& stream = order_.stream(s);
    Lease& lease = leases_.at(stream.pending.front());
    if (leases_.state(lease) == UnitState::kPart) take_part(lease);
    if (lease.poisoned && lease.parts.empty()) {
      return exited_result(poisoned_.at(lease.id));
    }
    if (leases_.is_computed(lease) || !lease.parts.empty()) {
      if (open(s)) continue;
      return exited_result(
          {.stream = next_stream,
           .text = "a worker committed a unit that cannot be read"});
    }
    if (leases_.is_refused(lease)) {
      // Perhaps its start was not known yet when it was published.
      memory_.retry_refused(stream, 0,
                            config_.kind == UnitKind::kSequential
                                ? &stream.opened_position
                                : nullptr);
      wake_everybody();  // The worker tries again, after the caller's report.
      return full_result(memory_.shortage(lease.slot->capacity));
    }
    if (workers_.fatal()) return exited_result(*workers_.fatal());
    if (const auto shortage = memory_.find_memory_for(lease)) {
      return wait_or_full(*shortage);
    }
    return AwaitedUnit{lease.id};
  }
}

std::optional<NextResult> ScheduleState::report_timeout(AwaitedUnit awaited) {
  const bool awaits_any_unit = awaited.id == kAnyUnit;
  if (!awaits_any_unit && is_ready(leases_.at(awaited.id).stream)) {
    return std::nullopt;
  }
  // A suspended process (SIGSTOP) may have consumed another worker's wake-up.
  wake_everybody();
  workers_.count_start_timeout();
  if (awaits_any_unit) {
    return NextResult{.kind = NextKind::kTimeout,
                      .report = {.stream = select_next_stream()},
                      .shortage = memory_.shortage()};
  }
  const Lease& lease = leases_.at(awaited.id);
  pace_.mark_reported(lease.id);
  return NextResult{.kind = NextKind::kTimeout,
                    .report = workers_.awaited_worker(leases_, lease)};
}

std::optional<double> ScheduleState::time_until_slow_s(AwaitedUnit awaited) {
  if (awaited.id == kAnyUnit) return std::nullopt;
  const auto limit_s = pace_.limit_s(awaited.id);
  if (!limit_s) return std::nullopt;
  const Lease& lease = leases_.at(awaited.id);
  return *limit_s - workers_.busy_s(leases_, lease);
}

NextResult ScheduleState::report_slow(AwaitedUnit awaited) {
  const Lease& lease = leases_.at(awaited.id);
  pace_.mark_reported(lease.id);
  WorkerReport report = workers_.awaited_worker(leases_, lease);
  report.busy_s = workers_.busy_s(leases_, lease);
  report.usual_s = pace_.usual_s();
  return {.kind = NextKind::kSlow, .report = std::move(report)};
}

NextResult ScheduleState::output_result(std::uint32_t s) const {
  const OpenUnit& unit = *open_units_[s];
  const auto* const header = arena_.base() + unit.slot->offset;
  const bool is_error = (unit.outputs[unit.index].flags & kOutputError) != 0;
  return {.kind = NextKind::kOutput,
          .output = {.stream = s,
                     .error = is_error,
                     .index = unit.index,
                     .address = reinterpret_cast<std::uint64_t>(header),
                     .bytes = unit.bytes}};
}

// Reads the header and the table of a slot; returns nullptr if they are
// corrupt.
std::unique_ptr<ScheduleState::OpenUnit> ScheduleState::read_slot(
    ArenaSlot* slot, std::uint32_t outputs, std::uint64_t bytes) const {
  auto unit = std::make_unique<OpenUnit>();
  unit->slot = slot;
  unit->bytes = bytes;
  if (bytes > slot->capacity) return nullptr;
  if (outputs == 0) return unit;
  const std::span content(arena_.base() + slot->offset, bytes);
  if (!read_outputs(content, outputs, config_.position_capacity,
                    unit->outputs)) {
    return nullptr;
  }
  return unit;
}

// Opens a part of the stream's oldest unit; returns false if it is corrupt.
bool ScheduleState::open_part(std::uint32_t s, Part part) {
  auto unit = read_slot(part.slot, part.outputs, part.bytes);
  if (unit == nullptr) {
    arena_.give_back(part.slot);
    return false;
  }
  order_.open_part(s, std::move(part.position_after));
  arena_.add_first_view(part.slot);
  open_units_[s] = std::move(unit);
  return true;
}

// Opens the stream's oldest unit, or the oldest part of it.  Returns false if
// that is corrupt.
// REQUIRES: the unit or a part of it is computed.
bool ScheduleState::open(std::uint32_t s) {
  const std::uint64_t oldest = order_.stream(s).pending.front();
  std::vector<Part>& parts = leases_.at(oldest).parts;
  if (!parts.empty()) {
    Part part = std::move(parts.front());
    parts.erase(parts.begin());
    return open_part(s, std::move(part));
  }
  const Lease lease = leases_.at(oldest);
  const Commit commit = leases_.commit_of(lease);
  auto unit = read_slot(lease.slot, commit.outputs, commit.bytes);
  if (unit == nullptr || commit.position_after.empty()) return false;
  arena_.charge_populated(lease.slot, leases_.populated(lease));
  memory_.record_used(commit.bytes);
  workers_.record_unit_done();
  pace_.add(1e-9 * static_cast<double>(commit.duration_ns));
  leases_.take(lease.id);
  order_.open_unit(s, commit.position_after);
  needs_fill_ = true;
  if (commit.status == UnitStatus::kEnd) {
    order_.seal(s);
    withdraw_stream(s);
  } else if (commit.status != UnitStatus::kOk && is_range()) {
    // The unit may have ended elsewhere than planned: plan the next ones again.
    withdraw_stream(s);
    order_.restart(s, commit.position_after.front());
  }
  if (is_range()) adapt_unit_records(lease, commit);
  if (commit.outputs == 0) {
    arena_.give_back(lease.slot);
    order_.close_unit(s);
    return true;
  }
  arena_.add_first_view(lease.slot);
  open_units_[s] = std::move(unit);
  return true;
}

// Adapts the number of records of later units.  If a worker ended a unit early
// (kMoved), later units get as many records as it computed.  If a whole unit
// took at most half of the memory of a unit, they get twice as many.
void ScheduleState::adapt_unit_records(const Lease& lease,
                                       const Commit& commit) {
  const std::int64_t planned = order_.unit_records();
  const std::int64_t computed = commit.position_after.front() - lease.first;
  if (commit.status == UnitStatus::kMoved && computed > 0 &&
      computed < lease.count) {
    order_.set_unit_records(std::min(planned, computed));
  } else if (planned < config_.unit_records && lease.count == planned &&
             commit.bytes <= max_unit_bytes(region_.control()) / 2) {
    order_.set_unit_records(std::min(config_.unit_records, 2 * planned));
  }
}

// Copies an offered part out of its unit's slot, or declines it if there is no
// memory for the copy.  Poisons the unit if the part is corrupt.
void ScheduleState::take_part(Lease& lease) {
  Commit commit = leases_.commit_of(lease);
  const bool is_valid =
      commit.outputs > 0 && commit.position_after.size() == 1 &&
      commit.bytes <= lease.slot->capacity &&
      commit.position_after.front() > lease.first &&
      commit.position_after.front() <= lease.first + lease.count;
  if (!is_valid) {
    return poison(lease, {.stream = static_cast<int>(lease.stream),
                          .text = "a worker offered an unreadable part"});
  }
  arena_.charge_populated(lease.slot, leases_.populated(lease));
  ArenaSlot* const copy = memory_.copy_slot(lease.slot, commit.bytes);
  if (copy == nullptr) return leases_.decline_part(lease);
  memory_.record_used(commit.bytes);
  workers_.record_unit_done();
  leases_.take_part(lease, std::move(commit), copy);
}

void ScheduleState::close_unit(std::uint32_t s) {
  order_.close_unit(s);
  release_view(open_units_[s]->slot);
  open_units_[s] = nullptr;
}

void ScheduleState::advance() {
  const std::uint32_t s = order_.next_stream();
  if (open_units_[s] == nullptr) return;
  OpenUnit& unit = *open_units_[s];
  Position position = std::move(unit.outputs[unit.index].position);
  std::atomic<std::uint64_t>& delivered = region_.control().delivered;
  delivered.store(delivered.load(std::memory_order_relaxed) + 1,
                  std::memory_order_relaxed);
  if (++unit.index == unit.outputs.size()) close_unit(s);
  order_.deliver(std::move(position));
}

ArenaSlot* ScheduleState::add_view() {
  const auto& unit = open_units_[order_.next_stream()];
  if (unit == nullptr) return nullptr;
  retain_view(unit->slot);
  return unit->slot;
}

void ScheduleState::withdraw(std::uint64_t id) {
  ArenaSlot* const slot = leases_.at(id).slot;
  for (const Part& part : std::exchange(leases_.at(id).parts, {})) {
    arena_.give_back(part.slot);
  }
  poisoned_.erase(id);
  if (leases_.withdraw(id)) arena_.give_back(slot);
}

void ScheduleState::withdraw_stream(std::uint32_t s) {
  const Stream& stream = order_.stream(s);
  for (const std::uint64_t id : stream.pending) withdraw(id);
  order_.restart(s, stream.next_first);
}

void ScheduleState::clear() {
  for (std::uint32_t s = 0; s < open_units_.size(); ++s) {
    if (open_units_[s] != nullptr) close_unit(s);
    withdraw_stream(s);
  }
  free_withdrawn_slots();
}

void ScheduleState::restart(const RunPosition& start) {
  clear();
  order_ = Order(config_.kind, config_.unit_records, config_.lengths, start);
  fill();
}

bool ScheduleState::free_withdrawn_slots() {
  const std::vector<Lease> collected = leases_.collect_withdrawn();
  for (const Lease& lease : collected) {
    arena_.charge_populated(lease.slot, lease.slot->capacity);
    arena_.give_back(lease.slot);
  }
  return !collected.empty();
}

}  // namespace gristmill
