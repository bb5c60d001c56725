// What the two halves of the Scheduler share.
//
// Thread safety: guarded by the scheduler's mutex.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/schedule/scheduler.hpp"
#include "core/memory/slot.hpp"

namespace gristmill {

// A unit being delivered.
struct Scheduler::Opened {
  std::uint64_t id = 0;
  Slot* slot = nullptr;  // null without outputs
  std::uint64_t bytes = 0;
  std::uint32_t index = 0;  // of the output due
  std::vector<SlotOutput> outputs;
};

// What is known of a worker's process.
struct Scheduler::Person {
  std::uint32_t generation = 0;
  bool alive = false;
  int pid = 0;                        // of the last one that was born
  std::uint32_t false_starts = 0;     // in a row
  std::uint32_t overdue = 0;          // timeouts that passed during its start
  std::uint32_t told_generation = 0;  // the one that ended as `told` says
  std::optional<int> told;
};

}  // namespace gristmill
