#include "core/packing/row_balance.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

namespace gristmill {
namespace {

using Span = PackedWindow::Span;

// More moves than this per row hardly decrease the costs.
constexpr std::size_t kMaxMovesPerRow = 16;

// Rows with their costs and rooms, each in ascending order.
class Balance {
 public:
  Balance(std::uint32_t capacity, std::span<const double> span_costs,
          const RowExtras& extras, std::span<std::vector<Span>> rows)
      : span_costs_(span_costs), extras_(extras), rows_(rows) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      auto room = capacity;
      for (const auto& span : rows[row]) room -= span.length;
      by_cost_.emplace(cost_of_row(rows[row], span_costs), row);
      by_room_.emplace(room, row);
      rooms_.push_back(room);
      extra_rooms_.push_back(extras.capacities);
      for (const auto& span : rows[row]) take_extras(row, span);
    }
  }

  // Moves a span of the most expensive row, or removes it from the rows that
  // may give a span.  Returns false if there are no such rows.
  bool move_one() {
    if (by_cost_.empty()) return false;
    const auto [from_cost, from] = *by_cost_.rbegin();
    auto most_room = by_room_.rbegin();
    if (most_room->second == from) ++most_room;
    const auto to = most_room->second;
    const auto to_cost = cost_of_row(rows_[to], span_costs_);
    auto least = from_cost;
    auto moved = rows_[from].end();
    for (auto span = rows_[from].begin(); span != rows_[from].end(); ++span) {
      if (span->length > rooms_[to] || !extras_fit(to, *span)) continue;
      const auto cost = span_costs_[span->length];
      const auto greatest = std::max(from_cost - cost, to_cost + cost);
      if (greatest >= least) continue;
      least = greatest;
      moved = span;
    }
    if (moved == rows_[from].end()) {
      by_cost_.erase({from_cost, from});
      return true;
    }
    forget(from);
    forget(to);
    rooms_[from] += moved->length;
    rooms_[to] -= moved->length;
    return_extras(from, *moved);
    take_extras(to, *moved);
    rows_[to].push_back(*moved);
    rows_[from].erase(moved);
    enter(from);
    enter(to);
    return true;
  }

 private:
  // Returns the lengths of a span's extra features, or nothing if it has none.
  [[nodiscard]] std::span<const std::uint32_t> extras_of(
      const Span& span) const {
    if (extra_rooms_.front().empty() || span.begin > 0) return {};
    return extras_.lengths.at(span.offset);
  }
  [[nodiscard]] bool extras_fit(std::size_t row, const Span& span) const {
    std::size_t i = 0;
    return std::ranges::all_of(extras_of(span), [&](std::uint32_t length) {
      return length <= extra_rooms_[row][i++];
    });
  }
  void take_extras(std::size_t row, const Span& span) {
    std::size_t i = 0;
    for (const auto length : extras_of(span)) extra_rooms_[row][i++] -= length;
  }
  void return_extras(std::size_t row, const Span& span) {
    std::size_t i = 0;
    for (const auto length : extras_of(span)) extra_rooms_[row][i++] += length;
  }
  void forget(std::size_t row) {
    by_cost_.erase({cost_of_row(rows_[row], span_costs_), row});
    by_room_.erase({rooms_[row], row});
  }
  void enter(std::size_t row) {
    std::ranges::sort(rows_[row], {}, [](const Span& span) {
      return std::tuple(span.offset, span.begin);
    });
    by_cost_.emplace(cost_of_row(rows_[row], span_costs_), row);
    by_room_.emplace(rooms_[row], row);
  }

  std::span<const double> span_costs_;
  const RowExtras& extras_;
  std::span<std::vector<Span>> rows_;
  std::set<std::pair<double, std::size_t>> by_cost_;  // That may give a span.
  std::set<std::pair<std::uint32_t, std::size_t>> by_room_;
  std::vector<std::uint32_t> rooms_;
  std::vector<std::vector<std::uint32_t>> extra_rooms_;  // By row.
};

}  // namespace

RowExtras extras_of_rows(std::span<const ExtraFeature> extras,
                         const DocumentWindows& windows,
                         const DocumentWindows::Window& window,
                         std::span<const std::vector<Span>> rows) {
  RowExtras found;
  if (extras.empty()) return found;
  std::vector<std::int64_t> offsets;
  for (const auto& row : rows) {
    for (const auto& span : row) offsets.push_back(span.offset);
  }
  auto documents = offsets;
  windows.resolve(window, documents);
  for (const auto& extra : extras) {
    found.capacities.push_back(static_cast<std::uint32_t>(extra.capacity));
    auto cells = documents;
    extra.lengths.gather(cells);
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      auto& lengths = found.lengths[static_cast<std::uint32_t>(offsets[i])];
      lengths.resize(found.capacities.size());
      lengths.back() = static_cast<std::uint32_t>(cells[i]);
    }
  }
  return found;
}

void balance_rows(std::uint32_t capacity, std::span<const double> span_costs,
                  std::span<std::vector<Span>> rows, const RowExtras& extras) {
  if (rows.size() < 2) return;
  Balance balance(capacity, span_costs, extras, rows);
  for (auto left = kMaxMovesPerRow * rows.size(); left > 0; --left) {
    if (!balance.move_one()) return;
  }
}

}  // namespace gristmill
