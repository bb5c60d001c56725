// An EpochCursor splits positions into an epoch and an offset in it.
//
// Position i is in epoch floor(i / length), so negative positions are in
// negative epochs.  The division is slow, so callers do it once for each run of
// positions in one epoch: they call move_to() only if contains() returns false.
//
// Thread safety: external synchronization.
#pragma once

#include <cassert>
#include <cstdint>
#include <limits>

namespace gristmill {

class EpochCursor {
 public:
  // Starts at epoch 0.  REQUIRES: length > 0.
  explicit EpochCursor(std::int64_t length) noexcept
      : length_(length),
        positions_after_first_(static_cast<std::uint64_t>(length) - 1) {
    assert(length > 0);
  }

  // Moves to the epoch of `position`.
  void move_to(std::int64_t position) noexcept {
    epoch_ = position / length_;
    if (position % length_ < 0) --epoch_;
    __extension__ using Wide = __int128;
    const auto begin = Wide{epoch_} * length_;
    const auto end = begin + (length_ - 1);
    // Only the positions that are int64, so that contains() cannot wrap around.
    constexpr Wide kMin = std::numeric_limits<std::int64_t>::min();
    constexpr Wide kMax = std::numeric_limits<std::int64_t>::max();
    const auto low = begin < kMin ? kMin : begin;
    positions_after_first_ =
        static_cast<std::uint64_t>((end > kMax ? kMax : end) - low);
    first_int64_ = static_cast<std::uint64_t>(low);
    begin_ = static_cast<std::uint64_t>(begin);
  }

  [[nodiscard]] std::int64_t epoch() const noexcept { return epoch_; }

  // Returns true if `position` is in this epoch.
  [[nodiscard]] bool contains(std::int64_t position) const noexcept {
    return static_cast<std::uint64_t>(position) - first_int64_ <=
           positions_after_first_;
  }

  // Returns the offset of `position` in this epoch.
  // REQUIRES: contains(position).
  [[nodiscard]] std::int64_t offset(std::int64_t position) const noexcept {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(position) -
                                     begin_);
  }

 private:
  std::int64_t length_;
  std::int64_t epoch_ = 0;
  // Unsigned, because the first epoch may begin before the smallest int64.
  std::uint64_t begin_ = 0;
  // The first position of the epoch that is an int64, and the number of int64
  // positions of the epoch after it.
  std::uint64_t first_int64_ = 0;
  std::uint64_t positions_after_first_ = 0;
};

}  // namespace gristmill
