// What a Scheduler is made for.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.hpp"
#include "core/memory/control.hpp"
#include "core/schedule/lease.hpp"

namespace gristmill {

struct SchedulerConfig {
  std::uint32_t workers = 1;
  std::uint32_t buffer = 1;  // units ahead: workers * (buffer + 2)
  UnitKind kind = UnitKind::kRange;
  std::int64_t unit_records = 1;      // ranges: records in a unit
  std::uint32_t max_restarts = 1;     // of one unit
  std::uint64_t memory_limit = 0;     // bytes, 0: 80 % of the memory
  std::vector<std::int64_t> lengths;  // records of each stream, -1 unknown
  std::uint32_t cursor_capacity = kSmallCursor;  // integers in a position
  std::vector<Cursor> starts;                    // position of each stream
  std::uint32_t next_stream = 0;
  std::vector<bool> ended;
  bool in_order = true;      // else outputs come as they are done
  bool exits_final = false;  // no other worker is started in the place of one
};

[[nodiscard]] Status check_config(const SchedulerConfig& config);

// Whether a position, or a request, has a length that there is room for.
[[nodiscard]] Status check_length(const char* what, const Cursor& cursor,
                                  std::uint32_t capacity);

}  // namespace gristmill
