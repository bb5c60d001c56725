// Workers as threads of the scheduler's process, on one mapping, so that
// ThreadSanitizer checks both ends.  A worker "exits" by returning at a planted
// point, which is reported like a supervisor reports an exit.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/check.hpp"
#include "core/memory/slot.hpp"
#include "core/schedule/scheduler.hpp"
#include "core/schedule/worker_end.hpp"

namespace gristmill::testing {

// The point at which a worker exits, if any.
enum class Plant {
  kNone,
  kStarted,      // admitted, before any claim
  kClaimed,      // claimed a unit, wrote nothing
  kMidWrite,     // half of the slot written
  kWritten,      // all written, not committed
  kNeed,         // requested a larger slot, has not waited
  kGranted,      // got the larger slot, wrote nothing
  kCommitted,    // committed; the exit is reported late
  kOfferedPart,  // offered a part, has not waited
  kResumed,      // resumed after a part, wrote nothing
};

using Values = std::vector<std::int64_t>;

// Returns integer `k` of output `i` of stream `s`.
inline std::int64_t value_of(std::uint32_t s, std::int64_t i, std::size_t k) {
  return static_cast<std::int64_t>(s) * 1'000'000'007 + i * 1013 +
         static_cast<std::int64_t>(k);
}

// Returns the contents of a slot with `outputs`.  Each is a repeated integer.
inline std::vector<std::byte> pack(std::uint32_t s, const Values& outputs,
                                   const std::vector<Values>& positions,
                                   std::size_t repeat, bool last_is_error) {
  std::size_t v = 1;
  for (const Values& position : positions) v = std::max(v, position.size());
  const std::size_t entry = sizeof(SlotEntry) + 8 * v;
  const std::size_t table = sizeof(SlotHeader);
  const std::size_t rest = table + entry * outputs.size();
  std::vector<std::byte> bytes(rest + outputs.size() * repeat * 8);
  const SlotHeader header{kSlotMagic,
                          static_cast<std::uint32_t>(outputs.size()),
                          static_cast<std::uint32_t>(v), 0, table};
  std::memcpy(bytes.data(), &header, sizeof(header));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    SlotEntry made{};
    made.flags = last_is_error && i + 1 == outputs.size() ? kOutputError : 0;
    made.rest_offset = rest + i * repeat * 8;
    made.rest_len = repeat * 8;
    made.position_len = static_cast<std::uint32_t>(positions[i].size());
    std::memcpy(&bytes[table + i * entry], &made, sizeof(made));
    std::memcpy(&bytes[table + i * entry + sizeof(made)], positions[i].data(),
                8 * positions[i].size());
    for (std::size_t k = 0; k < repeat; ++k) {
      const std::int64_t value = value_of(s, outputs[i], k);
      std::memcpy(&bytes[made.rest_offset + k * 8], &value, 8);
    }
  }
  return bytes;
}

// The work of the workers in a test.
struct Job {
  std::int64_t stream_end = -1;  // a sequence: records in a stream
  std::int64_t per_unit = 1;     // a sequence: outputs per unit
  std::size_t repeat = 8;        // integers in an output
  std::int64_t fails_at = -1;    // this record is an error, in every stream
  std::int64_t absent = -1;      // multiples have no output; one more is read
  std::int64_t per_part = 0;     // a range: outputs in a part, 0 for no parts
  bool tight = false;            // parts are offered only while awaited
  std::size_t longest = 0;  // a sequence: positions are padded, see padded()
  std::function<Plant(int worker, std::uint64_t id, std::uint32_t attempt)>
      plant = [](int, std::uint64_t, std::uint32_t) { return Plant::kNone; };
};

// The filter of a sequence drops multiples of 3.
inline bool dropped(std::int64_t record) { return record % 3 == 0; }

// Returns a position with up to `longest` more integers.  Their number changes
// from output to output, and their values depend on the first two integers.
inline Values padded(Values live, std::size_t longest) {
  if (longest == 0 || live[0] == 0) return live;
  const auto more = static_cast<std::size_t>(live[0] * 7919) % longest;
  for (std::size_t i = 0; i < more; ++i) {
    live.push_back(live[0] * 31 + static_cast<std::int64_t>(i));
  }
  return live;
}

inline Values unpadded(const Values& position, std::size_t longest) {
  CHECK(position.size() >= 2);
  Values live(position.begin(), position.begin() + 2);
  CHECK(position == padded(live, longest));
  return live;
}

struct Filled {
  std::vector<std::byte> bytes;
  std::uint32_t outputs = 0;
  UnitStatus status = UnitStatus::kOk;
  Values position;
};

class Worker {
 public:
  Worker(WorkerEnd& end, const Job& job, int index)
      : end_(end), job_(job), index_(index) {}

  // Returns when the scheduler closes, or at its planted exit.
  void serve() {
    if (job_.plant(index_, 0, 0) == Plant::kStarted) return;
    while (auto work = end_.claim()) {
      const Plant plant = job_.plant(index_, work->id, work->attempt);
      if (plant == Plant::kClaimed) return;
      bool lost = false;
      bool refused = false;
      while (!lost && !refused && has_part(*work)) {
        lost = !offer_part(*work);
        if (lost || plant == Plant::kOfferedPart) break;
        const std::int64_t before = work->first;
        lost = !end_.resume(*work);
        if (!lost && plant == Plant::kResumed) return;
        refused = work->first == before;
        work->position_before = {work->first};
      }
      if (plant == Plant::kOfferedPart) return;
      if (lost) continue;
      Filled filled = compute(*work);
      const std::size_t size = filled.bytes.size();
      if (size > work->capacity || plant == Plant::kNeed ||
          plant == Plant::kGranted) {
        const std::uint64_t ask = std::max<std::uint64_t>(size, 100'000);
        if (!end_.request_larger_slot(*work, ask)) continue;
        if (plant == Plant::kNeed || plant == Plant::kGranted) return;
      }
      if (size > 0) {
        std::memcpy(work->slot, filled.bytes.data(), size / 2);
        if (plant == Plant::kMidWrite) return;
        std::memcpy(work->slot, filled.bytes.data(), size);
      }
      if (plant == Plant::kMidWrite || plant == Plant::kWritten) return;
      end_.commit(*work, filled.status, filled.outputs, size, filled.position);
      if (plant == Plant::kCommitted) return;
    }
  }

 private:
  // Parts do not have the results of whole units.  In a tight arena, only
  // awaited parts are offered.
  [[nodiscard]] bool has_part(const Work& work) const {
    if (work.kind != UnitKind::kRange || job_.per_part == 0) return false;
    if (job_.tight && !end_.is_awaited(work)) return false;
    const std::int64_t last = work.first + job_.per_part;
    const bool fails = work.first <= job_.fails_at && job_.fails_at < last;
    return work.count > job_.per_part && job_.absent < 0 && !fails;
  }

  // Returns false if the unit is lost.
  bool offer_part(Work& work) {
    Work part = work;
    part.count = job_.per_part;
    part.position_before = {part.first};
    const Filled filled = arithmetic(part);
    const std::size_t size = filled.bytes.size();
    if (size > work.capacity && !end_.request_larger_slot(work, size))
      return false;
    std::memcpy(work.slot, filled.bytes.data(), filled.bytes.size());
    CHECK(end_.offer_part(work, filled.outputs, filled.bytes.size(),
                          filled.position));
    return true;
  }

  Filled compute(const Work& work) {
    switch (work.kind) {
      case UnitKind::kRange:
        return arithmetic(work);
      case UnitKind::kSequential:
        return owned(work);
      default:
        return requested(work);
    }
  }

  // The last integer of the request is the number of the output.
  Filled requested(const Work& work) {
    Filled filled;
    filled.bytes =
        pack(work.stream, {work.position_before.back()}, {{0}}, job_.repeat,
             work.position_before.back() == job_.fails_at);
    filled.outputs = 1;
    filled.position = {0};
    return filled;
  }

  Filled arithmetic(const Work& work) {
    Filled filled;
    Values records;
    std::vector<Values> positions;
    CHECK_EQ(work.position_before[0], work.first);
    std::int64_t last = work.first + work.count;
    for (auto r = work.first; r < last; ++r) {
      end_.current_record_address()->store(r, std::memory_order_relaxed);
      if (job_.absent > 0 && r % job_.absent == 0) {
        ++last;
        filled.status = UnitStatus::kMoved;
        continue;
      }
      records.push_back(r);
      positions.push_back({r + 1});
      if (r == job_.fails_at) {
        filled.status = UnitStatus::kError;
        break;
      }
    }
    filled.bytes = pack(work.stream, records, positions, job_.repeat,
                        filled.status == UnitStatus::kError);
    filled.outputs = static_cast<std::uint32_t>(records.size());
    filled.position = positions.back();
    return filled;
  }

  // Filters records and numbers the remaining ones.  The position is (record,
  // number of outputs).
  Filled owned(const Work& work) {
    Values& live = live_[work.stream];
    if (work.continues_stream) {
      CHECK_EQ(live.size(), std::size_t{2});
    } else {
      live = unpadded(work.position_before, job_.longest);
    }
    Filled filled;
    Values records;
    std::vector<Values> positions;
    while (static_cast<std::int64_t>(records.size()) < job_.per_unit) {
      if (live[0] >= job_.stream_end) {
        filled.status = UnitStatus::kEnd;
        break;
      }
      const std::int64_t record = live[0]++;
      if (dropped(record)) {
        // Several dropped records in a row result in a unit without outputs.
        if (record % 9 == 0) break;
        continue;
      }
      records.push_back(live[1]++);
      positions.push_back(padded(live, job_.longest));
    }
    filled.bytes = records.empty() ? std::vector<std::byte>{}
                                   : pack(work.stream, records, positions,
                                          job_.repeat, false);
    filled.outputs = static_cast<std::uint32_t>(records.size());
    filled.position = padded(live, job_.longest);
    return filled;
  }

  WorkerEnd& end_;
  const Job& job_;
  const int index_;
  std::map<std::uint32_t, Values> live_;
};

// Runs workers as threads.  Reports their starts and exits on a separate
// thread, like the supervisor.
class WorkerThreads final : public WorkerStarter {
 public:
  WorkerThreads(Scheduler& scheduler, Job job, bool own_mapping = false)
      : scheduler_(scheduler),
        job_(std::move(job)),
        own_mapping_(own_mapping),
        notify_fd_(eventfd(0, EFD_CLOEXEC)),
        supervisor_([this] { supervise(); }),
        listener_([this] { listen(); }) {}

  ~WorkerThreads() override { dismiss(); }

  void dismiss() {
    scheduler_.close();
    say({Event::kStop, 0, 0});
    if (supervisor_.joinable()) supervisor_.join();
    quit_ = true;
    const std::uint64_t one = 1;
    CHECK(write(notify_fd_, &one, 8) == 8);
    if (listener_.joinable()) listener_.join();
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  void start_worker(int worker, std::uint32_t generation) override {
    say({Event::kStart, worker, generation});
  }

  std::atomic<int> exits{0};

 private:
  struct Event {
    enum Kind { kStart, kExit, kStop } kind;
    int worker;
    std::uint32_t generation;
  };

  void say(Event event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    changed_.notify_one();
  }

  void supervise() {
    for (;;) {
      Event event{};
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !events_.empty(); });
        event = events_.front();
        events_.pop_front();
      }
      if (event.kind == Event::kStop) return;
      if (event.kind == Event::kStart) {
        threads_.emplace_back([this, event] { work(event); });
        scheduler_.on_started(event.worker, event.generation,
                              event.worker + 100);
      } else {
        ++exits;
        scheduler_.on_exited(event.worker, event.generation);
        scheduler_.on_exit_status(event.worker, event.generation, 9);
      }
    }
  }

  void work(Event event) {
    const auto index = static_cast<std::uint32_t>(event.worker);
    std::unique_ptr<WorkerEnd> end;
    if (own_mapping_) {
      auto opened = WorkerEnd::open(scheduler_.arena_fd(), notify_fd_, index,
                                    event.generation);
      CHECK(opened.ok());
      end = std::move(opened).value();
    } else {
      end = std::make_unique<WorkerEnd>(scheduler_.region(), notify_fd_, index,
                                        event.generation);
    }
    Worker(*end, job_, event.worker).serve();
    say({Event::kExit, event.worker, event.generation});
  }

  void listen() {
    std::uint64_t count = 0;
    while (read(notify_fd_, &count, 8) == 8 && !quit_)
      scheduler_.on_worker_notified();
  }

  Scheduler& scheduler_;
  const Job job_;
  const bool own_mapping_;
  const int notify_fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  // Only the supervisor's thread uses them until it is joined.
  std::deque<std::thread> threads_;
  std::atomic<bool> quit_{false};
  std::thread supervisor_;
  std::thread listener_;
};

struct Seen {
  std::uint32_t stream;
  std::int64_t value;
  bool error;
  bool operator==(const Seen&) const = default;
};

inline SchedulerConfig config(UnitKind kind, std::uint32_t workers,
                              std::size_t streams, std::int64_t length,
                              std::int64_t unit_records) {
  SchedulerConfig made;
  made.kind = kind;
  made.workers = workers;
  made.unit_records = unit_records;
  made.lengths.assign(streams, length);
  made.start.positions.assign(
      streams, kind == UnitKind::kSequential ? Position{0, 0} : Position{0});
  made.start.ended.assign(streams, false);
  return made;
}

inline std::unique_ptr<Scheduler> make(SchedulerConfig made) {
  auto result = Scheduler::create(std::move(made));
  CHECK(result.ok());
  return std::move(result).value();
}

// Reads the output and checks all its bytes.
inline Seen read_output(const Output& output, std::size_t repeat) {
  const auto* slot = reinterpret_cast<const std::byte*>(output.address);
  SlotHeader header;
  std::memcpy(&header, slot, sizeof(header));
  SlotEntry entry;
  std::memcpy(&entry,
              slot + header.table_offset +
                  output.index * (sizeof(SlotEntry) + 8 * header.position_room),
              sizeof(entry));
  CHECK_EQ(entry.rest_len, repeat * 8);
  std::int64_t first = 0;
  for (std::size_t k = 0; k < repeat; ++k) {
    std::int64_t value = 0;
    std::memcpy(&value, slot + entry.rest_offset + 8 * k, 8);
    if (k == 0) first = value;
    CHECK_EQ(value, first + static_cast<std::int64_t>(k));
  }
  return {output.stream, first, output.error};
}

// Delivers outputs until next() returns another kind of result.
inline std::vector<Seen> drain(Scheduler& scheduler, std::size_t repeat,
                               NextResult* last = nullptr) {
  std::vector<Seen> seen;
  for (;;) {
    NextResult next = scheduler.next(60);
    if (next.kind != NextKind::kOutput) {
      CHECK(next.kind != NextKind::kTimeout);
      if (last != nullptr) *last = next;
      return seen;
    }
    seen.push_back(read_output(next.output, repeat));
    scheduler.advance();
  }
}

// Returns the outputs of ranges without errors.
inline std::vector<Seen> expected_ranges(std::uint32_t streams,
                                         std::int64_t length) {
  std::vector<Seen> all;
  for (std::int64_t i = 0; i < length; ++i) {
    for (std::uint32_t s = 0; s < streams; ++s) {
      all.push_back({s, value_of(s, i, 0), false});
    }
  }
  return all;
}

inline std::vector<Seen> expected_sequences(std::uint32_t streams,
                                            std::int64_t records) {
  std::int64_t survivors = 0;
  for (std::int64_t r = 0; r < records; ++r) survivors += dropped(r) ? 0 : 1;
  return expected_ranges(streams, survivors);
}

}  // namespace gristmill::testing
