#include "core/schedule/config.hpp"

#include <cstddef>
#include <string>

namespace gristmill {
namespace {

// A claim looks at every unit, and every unit has pages from the start.
constexpr std::uint64_t kMostAhead = std::uint64_t{1} << 20;

Status check_streams(const SchedulerConfig& config) {
  const std::size_t streams = config.lengths.size();
  const auto wrong = [](const char* text) {
    return Status(Code::kInvalidArgument, text);
  };
  if (streams < 1 || streams > (1U << 20)) return wrong("no streams, or many");
  if (config.starts.size() != streams || config.ended.size() != streams) {
    return wrong("lengths, starts and ended must have one entry per stream");
  }
  if (config.next_stream >= streams) return wrong("turn must name a stream");
  if (config.cursor_capacity < 1 ||
      config.cursor_capacity > kMaxCursorCapacity) {
    return wrong("vector_capacity must be between 1 and 65536");
  }
  for (const Cursor& start : config.starts) {
    Status status = check_length("position", start, config.cursor_capacity);
    if (!status.ok()) return status;
    if (config.kind == UnitKind::kRange && start.front() < 0) {
      return wrong("a position must not be negative");
    }
  }
  return {};
}

}  // namespace

Status check_length(const char* what, const Cursor& cursor,
                    std::uint32_t capacity) {
  if (!cursor.empty() && cursor.size() <= capacity) return {};
  return Status(Code::kInvalidArgument,
                std::string("a ") + what + " has " +
                    std::to_string(cursor.size()) +
                    " integers; expected 1 to vector_capacity, which is " +
                    std::to_string(capacity));
}

Status check_config(const SchedulerConfig& config) {
  const auto wrong = [](const char* text) {
    return Status(Code::kInvalidArgument, text);
  };
  if (config.workers < 1 || config.workers > kMaxWorkers) {
    return wrong("workers must be between 1 and 4094");
  }
  if (std::uint64_t{config.workers} * config.buffer > kMostAhead) {
    return wrong("workers times buffer must be at most 2^20");
  }
  if (config.unit_records < 1) return wrong("unit_records must be positive");
  if (config.max_restarts > 100) return wrong("max_restarts must be <= 100");
  return check_streams(config);
}

}  // namespace gristmill
