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
      opened_(config.lengths.size()) {}

ScheduleState::~ScheduleState() {
  for (auto& unit : opened_) {
    if (unit != nullptr) release_view(unit->slot);
  }
  for (const auto& [id, lease] : leases_.all()) {
    arena_.give_back(lease.slot);
    for (const Part& part : lease.parts) arena_.give_back(part.slot);
  }
}

void ScheduleState::fill() {
  if (memory_.some_wait()) memory_.grant_all();
  needs_fill_ = false;
  const std::size_t ahead = std::size_t{config_.workers} * (config_.buffer + 2);
  std::size_t count = 0;
  while (order_.pending() < ahead) {
    const int chosen = order_.stream_to_publish();
    if (chosen < 0) break;
    if (!publish(static_cast<std::uint32_t>(chosen))) {
      needs_fill_ = true;
      break;
    }
    ++count;
  }
  wake_workers(count);
}

// Publishes the stream's next unit regardless of the number of pending units.
// Evicts other units until it fits.  Returns false if that is not enough.
bool ScheduleState::publish_due(std::uint32_t s) {
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
  ArenaSlot* const slot = memory_.slot_for_next();
  if (slot == nullptr) return false;
  const Stream& stream = order_.stream(s);
  Lease lease = order_.plan(s);
  lease.slot = slot;
  if (!is_range()) lease.owner = s % config_.workers + 1;
  Position position = config_.kind == UnitKind::kRequest
                          ? order_.request(s)
                          : begin_of_next(stream);
  if (is_range()) position.front() = lease.first;
  const std::uint64_t id = leases_.publish(lease, position);
  if (id == 0) {
    arena_.give_back(slot);
    return false;
  }
  order_.add_unit(s, id, lease.count);
  return true;
}

// Returns the start of the stream's next unit.  If the previous unit is not
// computed yet, the stream's owner ignores this and uses its own state.
Position ScheduleState::begin_of_next(const Stream& stream) const {
  if (is_range() || stream.pending.empty()) return stream.opened_position;
  const Lease& before = leases_.all().at(stream.pending.back());
  if (!leases_.is_computed(before)) return stream.opened_position;
  Position after = leases_.commit_of(before).position_after;
  return after.empty() ? stream.opened_position : after;
}

void ScheduleState::add_request(std::uint32_t stream, Position request) {
  order_.add_request(stream, std::move(request));
  fill();
}

// Returns true if an output is open, or can be opened without waiting.
bool ScheduleState::is_done(std::uint32_t s) const {
  if (opened_[s] != nullptr) return true;
  if (!is_published(s)) return false;
  const auto& due = leases_.all().at(order_.streams()[s].pending.front());
  const UnitState state = leases_.state(due);
  return due.poisoned || !due.parts.empty() || state == UnitState::kCommitted ||
         state == UnitState::kPart;
}

bool ScheduleState::is_published(std::uint32_t s) const {
  return !order_.streams()[s].pending.empty();
}

// Selects the stream to deliver from next and returns it; -1 if all have ended.
// If outputs may be delivered out of order, prefers a ready output, then a
// published unit, then a stream with more units.  Ties go to the next in turn.
int ScheduleState::select_next_stream() {
  if (config_.in_order) return order_.select_next_stream();
  constexpr int kNothing = 3;
  const auto rank = [this](std::uint32_t s) {
    if (is_done(s)) return 0;
    if (is_published(s)) return 1;
    return order_.has_more(s) ? 2 : kNothing;
  };
  int best = kNothing;
  const std::uint32_t first = order_.next_stream();
  const auto count = static_cast<std::uint32_t>(opened_.size());
  for (std::uint32_t n = 0; n < count && best > 0; ++n) {
    const std::uint32_t s = (first + n) % count;
    const int its = rank(s);
    if (its < best) order_.set_next_stream(s);
    best = std::min(best, its);
  }
  if (best == kNothing) return order_.select_next_stream();
  return static_cast<int>(order_.next_stream());
}

std::variant<NextResult, ScheduleState::Awaited> ScheduleState::poll_next() {
  using Found = std::variant<NextResult, Awaited>;
  const auto no_memory = [](const Shortage& shortage) {
    return NextResult{.kind = NextKind::kFull, .shortage = shortage};
  };
  const auto lacks_memory = [&](const Shortage& shortage) -> Found {
    if (leases_.has_work()) return Awaited{kAnyUnit};
    return no_memory(shortage);
  };
  const auto exited = [](const WorkerReport& report) {
    return NextResult{.kind = NextKind::kExited, .report = report};
  };
  arena_.reclaim();
  collect();
  for (;;) {
    if (needs_fill_ || memory_.some_wait()) fill();
    const int due = select_next_stream();
    if (due < 0) return NextResult{.kind = NextKind::kEnd};
    const auto s = static_cast<std::uint32_t>(due);
    if (opened_[s] != nullptr) return output(s);
    if (!is_published(s) && !publish_due(s)) {
      if (workers_.fatal()) return exited(*workers_.fatal());
      return lacks_memory(memory_.shortage());
    }
    const Stream& stream = order_.stream(s);
    Lease& lease = leases_.at(stream.pending.front());
    if (leases_.state(lease) == UnitState::kPart) take_part(lease);
    if (lease.poisoned && lease.parts.empty()) {
      return exited(poisoned_.at(lease.id));
    }
    if (leases_.is_computed(lease) || !lease.parts.empty()) {
      if (open(s)) continue;
      return exited({.stream = due,
                     .text = "a worker committed a unit that cannot be read"});
    }
    if (leases_.is_refused(lease)) {
      memory_.retry_refused(stream, 0,
                            config_.kind == UnitKind::kSequential
                                ? &stream.opened_position
                                : nullptr);
      wake_everybody();  // The worker tries again, after the caller's report.
      return no_memory(memory_.shortage(lease.slot->capacity));
    }
    if (workers_.fatal()) return exited(*workers_.fatal());
    if (const auto shortage = memory_.find_memory_for(lease)) {
      return lacks_memory(*shortage);
    }
    return Awaited{lease.id};
  }
}

std::optional<NextResult> ScheduleState::report_timeout(Awaited awaited) {
  const bool lacks_memory = awaited.unit == kAnyUnit;
  if (!lacks_memory && is_done(leases_.at(awaited.unit).stream)) {
    return std::nullopt;
  }
  // A suspended process (SIGSTOP) may have consumed another worker's wake-up.
  wake_everybody();
  workers_.count_start_timeout();
  if (lacks_memory) {
    return NextResult{.kind = NextKind::kTimeout,
                      .report = {.stream = select_next_stream()},
                      .shortage = memory_.shortage()};
  }
  const Lease& lease = leases_.at(awaited.unit);
  pace_.reported(lease.id);
  return NextResult{.kind = NextKind::kTimeout,
                    .report = workers_.awaited_worker(leases_, lease)};
}

std::optional<double> ScheduleState::slow_in_s(Awaited awaited) {
  if (awaited.unit == kAnyUnit) return std::nullopt;
  const auto limit_s = pace_.limit_s(awaited.unit);
  if (!limit_s) return std::nullopt;
  const Lease& lease = leases_.at(awaited.unit);
  return *limit_s - workers_.busy_s(leases_, lease);
}

NextResult ScheduleState::report_slow(Awaited awaited) {
  const Lease& lease = leases_.at(awaited.unit);
  pace_.reported(lease.id);
  WorkerReport report = workers_.awaited_worker(leases_, lease);
  report.busy_s = workers_.busy_s(leases_, lease);
  report.usual_s = pace_.usual_s();
  return {.kind = NextKind::kSlow, .report = std::move(report)};
}

NextResult ScheduleState::output(std::uint32_t s) const {
  const Opened& unit = *opened_[s];
  const auto* const header = arena_.base() + unit.slot->offset;
  const bool error = (unit.outputs[unit.index].flags & kOutputError) != 0;
  return {.kind = NextKind::kOutput,
          .output = {.stream = s,
                     .error = error,
                     .index = unit.index,
                     .address = reinterpret_cast<std::uint64_t>(header),
                     .bytes = unit.bytes}};
}

// Reads the header of a slot; returns nullptr if it is corrupt.
std::unique_ptr<ScheduleState::Opened> ScheduleState::read_slot(
    ArenaSlot* slot, std::uint32_t outputs, std::uint64_t bytes) const {
  auto unit = std::make_unique<Opened>();
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
  opened_[s] = std::move(unit);
  return true;
}

// Opens the stream's oldest unit, or its oldest part; false if that is corrupt.
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
  pace_.add(1e-9 * static_cast<double>(commit.took_ns));
  leases_.take(lease.id);
  order_.open_unit(s, commit.position_after);
  needs_fill_ = true;
  if (commit.status == UnitStatus::kEnd) {
    order_.seal(s);
    withdraw_stream(s);
  } else if (commit.status != UnitStatus::kOk && is_range()) {
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
  opened_[s] = std::move(unit);
  return true;
}

// Adapts the number of records of later units.  If a worker ended a unit early
// (kMoved), later units get as many records as it computed.  If a whole unit
// took at most half of the memory of a unit, they get twice as many.
void ScheduleState::adapt_unit_records(const Lease& lease,
                                       const Commit& commit) {
  const std::int64_t planned = order_.unit_records();
  const std::int64_t done = commit.position_after.front() - lease.first;
  if (commit.status == UnitStatus::kMoved && done > 0 && done < lease.count) {
    order_.set_unit_records(std::min(planned, done));
  } else if (planned < config_.unit_records && lease.count == planned &&
             commit.bytes <= max_unit_bytes(region_.control()) / 2) {
    order_.set_unit_records(std::min(config_.unit_records, 2 * planned));
  }
}

// Copies an offered part out of its unit's slot, if there is memory for that.
void ScheduleState::take_part(Lease& lease) {
  Commit commit = leases_.commit_of(lease);
  const bool sound = commit.outputs > 0 && commit.position_after.size() == 1 &&
                     commit.bytes <= lease.slot->capacity &&
                     commit.position_after.front() > lease.first &&
                     commit.position_after.front() <= lease.first + lease.count;
  if (!sound) {
    return poison(lease, {.stream = static_cast<int>(lease.stream),
                          .text = "a worker offered an unreadable part"});
  }
  arena_.charge_populated(lease.slot, leases_.populated(lease));
  ArenaSlot* const copy = memory_.copy_of(lease.slot, commit.bytes);
  if (copy == nullptr) return leases_.refuse_part(lease);
  memory_.record_used(commit.bytes);
  workers_.record_unit_done();
  leases_.take_part(lease, std::move(commit), copy);
}

void ScheduleState::close_unit(std::uint32_t s) {
  order_.close_unit(s);
  release_view(opened_[s]->slot);
  opened_[s] = nullptr;
}

void ScheduleState::advance() {
  const std::uint32_t s = order_.next_stream();
  if (opened_[s] == nullptr) return;
  Opened& unit = *opened_[s];
  Position position = std::move(unit.outputs[unit.index].position);
  std::atomic<std::uint64_t>& delivered = region_.control().delivered;
  delivered.store(delivered.load(std::memory_order_relaxed) + 1,
                  std::memory_order_relaxed);
  if (++unit.index == unit.outputs.size()) close_unit(s);
  order_.deliver(std::move(position));
}

ArenaSlot* ScheduleState::hold() {
  const auto& unit = opened_[order_.next_stream()];
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
  for (std::uint32_t s = 0; s < opened_.size(); ++s) {
    if (opened_[s] != nullptr) close_unit(s);
    withdraw_stream(s);
  }
  collect();
}

void ScheduleState::restart(const RunPosition& start) {
  clear();
  order_ = Order(config_.kind, config_.unit_records, config_.lengths, start);
  fill();
}

bool ScheduleState::collect() {
  const std::vector<Lease> done = leases_.collect_withdrawn();
  for (const Lease& lease : done) {
    arena_.charge_populated(lease.slot, lease.slot->capacity);
    arena_.give_back(lease.slot);
  }
  return !done.empty();
}

}  // namespace gristmill
