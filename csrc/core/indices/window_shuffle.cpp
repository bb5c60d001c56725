#include "core/indices/window_shuffle.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include "core/indices/epoch_cursor.hpp"
#include "core/indices/permute.hpp"

namespace gristmill {
namespace {

__extension__ using Wide = __int128;

struct Window {
  std::int64_t number;  // Counted through all epochs.
  Wide begin;           // Its first position, which may be less than any int64.
  std::int64_t first;   // The offset of its first position in the epoch.
  std::int64_t size;
};

// Returns the window that contains an offset of an epoch.
Window window_at(std::int64_t window_size, std::int64_t length, Wide epoch,
                 std::int64_t offset) {
  const auto number_in_epoch = offset / window_size;
  const auto windows_per_epoch = (length - 1) / window_size + 1;
  const auto first = number_in_epoch * window_size;
  // The number fits, because there are at most as many windows as positions.
  return {.number = static_cast<std::int64_t>(epoch * windows_per_epoch +
                                              number_in_epoch),
          .begin = epoch * length + first,
          .first = first,
          .size = std::min(window_size, length - first)};
}

// Permutes offsets in a window, and replaces them by positions.
Status shuffle(const Window& window, std::int64_t seed,
               std::span<std::int64_t> offsets) {
  const auto window_seed = Wide{seed} + window.number;
  if (window_seed < 0 ||
      window_seed > std::numeric_limits<std::uint32_t>::max()) {
    return {Code::kOutOfRange,
            "seed plus the number of a window must be in [0, 2**32), got seed ",
            seed, " for window ", window.number};
  }
  Permutation(window.size - 1, static_cast<std::uint32_t>(window_seed))
      .apply(offsets);
  const auto [min_offset, max_offset] = std::ranges::minmax(offsets);
  if (window.begin + min_offset < std::numeric_limits<std::int64_t>::min() ||
      window.begin + max_offset > std::numeric_limits<std::int64_t>::max()) {
    return {Code::kOverflow, "a shuffled position exceeds 64 bits"};
  }
  const auto begin = static_cast<std::uint64_t>(window.begin);
  for (auto& offset : offsets) {
    offset =
        static_cast<std::int64_t>(begin + static_cast<std::uint64_t>(offset));
  }
  return {};
}

}  // namespace

Status window_shuffle(std::span<std::int64_t> positions,
                      std::int64_t window_size, std::int64_t seed,
                      std::int64_t length) {
  if (window_size <= 0) {
    return {Code::kInvalidArgument, "window_size must be positive, got ",
            window_size};
  }
  if (positions.empty()) return {};
  if (length <= 0) {
    return {Code::kDivideByZero,
            "cannot shuffle the windows of an empty dataset"};
  }
  EpochCursor epochs(length);
  for (std::size_t first = 0; first < positions.size();) {
    epochs.move_to(positions[first]);
    const auto window = window_at(window_size, length, epochs.epoch(),
                                  epochs.offset(positions[first]));
    auto last = first;
    for (; last < positions.size() && epochs.contains(positions[last]);
         ++last) {
      const auto offset = epochs.offset(positions[last]) - window.first;
      if (offset < 0 || offset >= window.size) break;
      positions[last] = offset;
    }
    TRY(shuffle(window, seed, positions.subspan(first, last - first)));
    first = last;
  }
  return {};
}

}  // namespace gristmill
