#include "core/packing/document_windows.hpp"

#include "core/indices/permute.hpp"
#include "core/packing/random_order.hpp"

namespace gristmill {
namespace {

// Returns floor(left * right / divisor).
std::int64_t scale(std::int64_t left, std::int64_t right,
                   std::int64_t divisor) {
  __extension__ using Wide = __int128;
  return static_cast<std::int64_t>(Wide{left} * right / divisor);
}

}  // namespace

DocumentWindows::DocumentWindows(std::int64_t documents,
                                 std::int64_t max_window,
                                 std::optional<std::uint32_t> seed)
    : documents_(documents),
      per_epoch_(documents / max_window + (documents % max_window != 0)),
      seed_(seed) {}

DocumentWindows::Window DocumentWindows::at(
    std::int64_t number) const noexcept {
  const auto in_epoch = number % per_epoch_;
  const auto first = scale(documents_, in_epoch, per_epoch_);
  return {.number = number,
          .epoch = number / per_epoch_,
          .first = first,
          .size = scale(documents_, in_epoch + 1, per_epoch_) - first};
}

std::optional<std::uint64_t> DocumentWindows::row_seed(
    const Window& window) const noexcept {
  if (!seed_) return std::nullopt;
  return random_bits(*seed_, static_cast<std::uint64_t>(window.number));
}

void DocumentWindows::resolve(const Window& window,
                              std::span<std::int64_t> offsets) const noexcept {
  for (auto& offset : offsets) offset += window.first;
  if (!seed_) return;
  const auto seed = *seed_ + static_cast<std::uint32_t>(window.epoch);
  Permutation(documents_ - 1, seed).apply(offsets);
}

}  // namespace gristmill
