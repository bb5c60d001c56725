#include "core/packing/pack_options.hpp"

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "core/base/highway_hash.hpp"

namespace gristmill {
namespace {

constexpr std::int64_t kMaxWindow = std::numeric_limits<std::int32_t>::max();
// The key of the hash of a plan.
constexpr HighwayHash::Key kCountsKey{0x31736777, 0, 0, 0};  // "wgs1"

constexpr double kMaxSpanCost = 1e100;  // Sums must not become infinite.

}  // namespace

Status check_pack_options(const PackOptions& options) {
  if (options.capacity < 1 || options.capacity > PackRule::kMaxCapacity) {
    return {Code::kInvalidArgument, "capacity must be in [1, 2**24], got ",
            options.capacity};
  }
  for (const auto& extra : options.extras) {
    if (extra.capacity >= 1 && extra.capacity <= PackRule::kMaxCapacity) {
      continue;
    }
    return {Code::kInvalidArgument, "capacity of ", extra.name,
            " must be in [1, 2**24], got ", extra.capacity};
  }
  if (options.window < 1 || options.window > kMaxWindow) {
    return {Code::kInvalidArgument, "window must be in [1, 2**31), got ",
            options.window};
  }
  if (options.epochs < 1) {
    return {Code::kInvalidArgument, "num_epochs must be at least 1, got ",
            options.epochs};
  }
  if (options.group_rows < 1) {
    return {Code::kInvalidArgument, "group_rows must be at least 1, got ",
            options.group_rows};
  }
  if (options.span_costs.empty()) return {};
  if (options.span_costs.size() !=
      static_cast<std::uint64_t>(options.capacity) + 1) {
    return {Code::kInvalidArgument,
            "span_costs must have capacity + 1 = ", options.capacity + 1,
            " items, got ", options.span_costs.size()};
  }
  for (std::size_t length = 0; length < options.span_costs.size(); ++length) {
    const auto cost = options.span_costs[length];
    if (cost >= 0 && cost <= kMaxSpanCost) continue;
    return {Code::kInvalidArgument,
            "span_costs must be in [0, 1e100], got ",
            std::to_string(cost),
            " for ",
            length,
            " tokens"};
  }
  return {};
}

std::uint64_t pack_counts_key(const PackOptions& options,
                              const LengthTotals& totals) {
  // Costs do not change the number of rows.
  std::vector<std::uint64_t> fields{
      totals.hash,
      static_cast<std::uint64_t>(options.capacity),
      static_cast<std::uint64_t>(options.method),
      static_cast<std::uint64_t>(options.long_documents),
      static_cast<std::uint64_t>(options.window),
      options.seed.has_value() ? std::uint64_t{1} : 0,
      options.seed.value_or(0)};
  for (const auto& extra : options.extras) {
    fields.push_back(static_cast<std::uint64_t>(extra.capacity));
  }
  return HighwayHash::of(kCountsKey, std::as_bytes(std::span(fields)));
}

}  // namespace gristmill
