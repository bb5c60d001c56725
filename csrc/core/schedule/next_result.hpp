// The results of the Scheduler's next(): an output, or why there is none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gristmill {

struct Output {
  std::uint32_t stream = 0;
  bool error = false;         // its contents are an error to raise
  std::uint32_t index = 0;    // index in the slot
  std::uint64_t address = 0;  // address of the slot's header
  std::uint64_t bytes = 0;    // used bytes of the slot
};

// Why no worker will compute the output due; after a timeout, the worker that
// the consumer waits for.
struct WorkerReport {
  int worker = -1;                      // -1: no particular worker
  int pid = 0;                          // the worker's, 0 before its start
  std::uint32_t generation = 0;         // the worker's
  std::optional<int> wait_status = {};  // as waitpid(2); empty if unknown
  int stream = -1;
  std::int64_t record = -1;  // record being processed, -1 for none
  // Workers that exited with the unit; if at_start, failed starts in a row.
  std::uint32_t attempts = 0;
  bool at_start = false;  // the worker could not start
  bool idle = false;      // after a timeout: it has not begun the output due
  double busy_s = 0;      // slow unit: time since its claim
  double usual_s = 0;     // slow unit: usual time of units before it
  std::string text = {};  // message from the worker or the supervisor

  // Stores the wait status of a process if the report is about that process.
  void record_exit_status(int exited_worker, std::uint32_t exited_generation,
                          int exit_status) {
    if (worker != exited_worker || generation != exited_generation) return;
    wait_status = exit_status;
  }
};

// Memory that was needed but exceeds the memory limit.
struct Shortage {
  std::uint64_t needed_bytes = 0;  // by the awaited unit
  std::uint64_t limit_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t viewed_slots = 0;  // slots whose arrays the user keeps
  std::uint64_t viewed_bytes = 0;
};

enum class NextKind {
  kOutput,
  kEnd,          // all streams have ended
  kInterrupted,  // a signal arrived: run its handler, call again
  kTimeout,      // `report` has the worker that computes the output due; if it
                 // waits for memory, `shortage` has what is missing
  // no worker will compute the output due: `report` has the reason
  kExited,
  kFull,  // memory is short, see `shortage`: call again when some is free
  kClosed,
  kForked,  // this process is a fork of the one that made the scheduler
  kSlow,    // `report` names a worker that takes much longer than usual
};

struct NextResult {
  NextKind kind = NextKind::kEnd;
  Output output = {};
  WorkerReport report = {};
  Shortage shortage = {};
  double waited_s = 0;  // kSlow: time spent in this call of next()

  // Returns true if this is about an exited process whose wait status is not
  // known yet.
  [[nodiscard]] bool lacks_wait_status() const noexcept {
    return kind == NextKind::kExited && report.worker >= 0 &&
           !report.wait_status;
  }
};

}  // namespace gristmill
