// What the Scheduler's next() says: an output, or why there is none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gristmill {

struct Output {
  std::uint32_t stream = 0;
  bool error = false;         // its content is an error to raise
  std::uint32_t index = 0;    // in its slot
  std::uint64_t address = 0;  // of the slot's header
  std::uint64_t bytes = 0;    // of the slot that are used
};

// Why no worker will compute the output due; after a timeout, who is waited
// for.
struct WorkerReport {
  int worker = -1;                      // -1: not one worker's fault
  int pid = 0;                          // of the worker, 0 before its start
  std::uint32_t generation = 0;         // of the worker
  std::optional<int> wait_status = {};  // as waitpid(2), if it became known
  int stream = -1;
  std::int64_t record = -1;  // record in work, -1 for none
  std::uint32_t attempts = 0;
  bool at_start = false;  // it could not begin to work
  bool idle = false;      // after a timeout: it has not begun the output due
  double busy_s = 0;      // of a slow unit: how long it has been at it
  double usual_s = 0;     // and how long the units before took
  std::string text = {};  // what the worker or the supervisor said about it

  // Takes note of how a process ended, if it is this one.
  void learn(int its_worker, std::uint32_t its_generation, int status) {
    if (worker != its_worker || generation != its_generation) return;
    wait_status = status;
  }
};

// What did not fit below the memory limit.
struct Shortage {
  std::uint64_t need = 0;   // bytes of the unit awaited
  std::uint64_t limit = 0;  // bytes
  std::uint64_t used = 0;   // bytes
  std::uint64_t kept = 0;   // units whose arrays the user keeps
  std::uint64_t kept_bytes = 0;
};

enum class NextKind {
  kOutput,
  kEnd,          // all streams have ended
  kInterrupted,  // a signal came: run its handler, call again
  kTimeout,      // `report` has the worker that computes the output due; if it
                 // waits for memory, `shortage` has what is missing
  kExited,
  kFull,  // call again when some memory is free
  kClosed,
  kForked,  // this process is a fork of the one that made the scheduler
  kSlow,    // `report` names a worker that takes much longer than usual
};

struct NextResult {
  NextKind kind = NextKind::kEnd;
  Output output = {};
  WorkerReport report = {};
  Shortage shortage = {};
  double waited_s = 0;  // of kSlow: in this call of next()

  // It is about a process that ended, and how is not known so far.
  [[nodiscard]] bool lacks_wait_status() const noexcept {
    return kind == NextKind::kExited && report.worker >= 0 &&
           !report.wait_status;
  }
};

}  // namespace gristmill
