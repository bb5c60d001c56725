#include "core/indices/plan.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "core/indices/epoch_cursor.hpp"
#include "core/indices/permute.hpp"

namespace gristmill {
namespace {

__extension__ using Wide = __int128;

constexpr std::int64_t kMinInt64 = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

// Number of offsets that are resolved together, so that they stay in the cache.
constexpr std::int64_t kBlockSize = 1024;

Status negative_count_error(std::int64_t count) {
  return {Code::kInvalidArgument, "count must be at least 0, got ", count};
}

Status empty_plan_error() {
  return {Code::kDivideByZero, "the plan has no positions"};
}

Status outside_epoch_error(const std::string& subject, std::int64_t length) {
  return {Code::kInvalidArgument, subject, " must lie in one epoch of ", length,
          " positions"};
}

// Replaces offsets in an epoch of `length` by positions.
Status add_epochs(std::int64_t length, Wide epoch,
                  std::span<std::int64_t> offsets) {
  Wide base = 0;
  // With a base outside of these bounds, no offset gives an int64.
  if (!__builtin_mul_overflow(epoch, Wide{length}, &base) &&
      base >= Wide{kMinInt64} - kMaxInt64 && base <= kMaxInt64) {
    const auto [min_offset, max_offset] = std::ranges::minmax(offsets);
    if (base + min_offset >= kMinInt64 && base + max_offset <= kMaxInt64) {
      const auto shift = static_cast<std::uint64_t>(base);
      for (auto& offset : offsets) {
        offset = static_cast<std::int64_t>(shift +
                                           static_cast<std::uint64_t>(offset));
      }
      return {};
    }
  }
  return {Code::kOverflow, "a position of the parent dataset exceeds 64 bits"};
}

// Stores first + step * (count - 1) in `last`.  Returns false if it overflows.
// REQUIRES: count > 0.
bool compute_last(std::int64_t first, std::int64_t step, std::int64_t count,
                  std::int64_t& last) {
  const auto last_wide = Wide{step} * (count - 1) + first;
  last = static_cast<std::int64_t>(last_wide);
  return last == last_wide;
}

}  // namespace

Result<KeyPlan> KeyPlan::range(std::int64_t count, std::int64_t first,
                               std::int64_t step) {
  if (count < 0) return negative_count_error(count);
  std::int64_t last = 0;
  if (count > 0 && !compute_last(first, step, count, last)) {
    return Status(Code::kOverflow, "the last key of the range exceeds 64 bits");
  }
  return KeyPlan({Op{.length = count, .first = first, .step = step}});
}

Result<KeyPlan> KeyPlan::positions(std::int64_t count) {
  if (count < 0) return negative_count_error(count);
  return KeyPlan({Op{.kind = Kind::kPositions, .length = count}});
}

Result<KeyPlan> KeyPlan::shard(std::int64_t first, std::int64_t last) const {
  if (first < 0 || last < first || last > length()) {
    return outside_epoch_error(concat("the shard [", first, ", ", last, ")"),
                               length());
  }
  return append(Op{
      .kind = Kind::kShard, .length = last - first, .first = first, .step = 1});
}

Result<KeyPlan> KeyPlan::shuffle(std::int64_t seed) const {
  if (seed < 0 || seed > std::numeric_limits<std::uint32_t>::max()) {
    return Status(
        Code::kInvalidArgument,
        "Seed must be an integer between 0 and 2**32-1 (got seed=", seed, ").");
  }
  return append(Op{.kind = Kind::kShuffle,
                   .length = length(),
                   .seed = static_cast<std::uint32_t>(seed)});
}

Result<KeyPlan> KeyPlan::repeat(std::optional<std::int64_t> epochs,
                                bool reseed) const {
  if (epochs && *epochs <= 0) {
    return Status(Code::kInvalidArgument,
                  "num_epochs must be positive, but got ", *epochs, ".");
  }
  if (length() == kEndless) {
    return Status(Code::kInvalidArgument,
                  "Repeating an already infinite plan does nothing.");
  }
  std::int64_t total = length() == 0 ? 0 : kEndless;
  if (epochs && __builtin_mul_overflow(*epochs, length(), &total)) {
    return Status(Code::kOverflow, *epochs, " epochs of ", length(),
                  " positions exceed 64 bits");
  }
  return append(Op{.kind = Kind::kRepeat,
                   .length = total,
                   .epochs = epochs.value_or(0),
                   .reseed = reseed});
}

Result<KeyPlan> KeyPlan::slice(std::int64_t first, std::int64_t step,
                               std::int64_t count) const {
  std::int64_t last = first;
  if (count < 0 || (count > 0 && (!compute_last(first, step, count, last) ||
                                  std::min(first, last) < 0 ||
                                  std::max(first, last) >= length()))) {
    return outside_epoch_error(concat("the slice of ", count, " offsets from ",
                                      first, " with step ", step),
                               length());
  }
  return append(
      Op{.kind = Kind::kSlice, .length = count, .first = first, .step = step});
}

KeyPlan KeyPlan::append(const Op& op) const {
  auto ops = ops_;
  ops.push_back(op);
  return KeyPlan(std::move(ops));
}

Result<std::int64_t> KeyPlan::key(std::int64_t position) const {
  if (length() == 0) return empty_plan_error();
  EpochCursor cursor(length());
  cursor.move_to(position);
  position = cursor.offset(position);
  TRY(resolve(ops_.size(), cursor.epoch(), {&position, 1}));
  return position;
}

Status KeyPlan::fill(std::int64_t first, std::int64_t step,
                     std::span<std::int64_t> out) const {
  if (out.empty()) return {};
  if (length() == 0) return empty_plan_error();
  std::int64_t last = 0;
  if (!compute_last(first, step, static_cast<std::int64_t>(out.size()), last)) {
    return {Code::kOverflow, "the last position exceeds 64 bits"};
  }
  auto position = first;
  EpochCursor cursor(length());
  while (!out.empty()) {
    cursor.move_to(position);
    const auto offset = cursor.offset(position);
    // The number of further steps that stay in the epoch.
    auto further_steps =
        std::min(kBlockSize, static_cast<std::int64_t>(out.size())) - 1;
    if (step > 0) {
      further_steps = std::min(further_steps, (length() - 1 - offset) / step);
    } else if (step < 0) {
      // The smallest int64 has no negative, and such a step leaves every epoch.
      further_steps =
          std::min(further_steps, offset / -std::max(-kMaxInt64, step));
    }
    const auto block = out.first(static_cast<std::size_t>(further_steps + 1));
    for (std::size_t k = 0; k < block.size(); ++k) {
      block[k] = offset + static_cast<std::int64_t>(k) * step;
    }
    TRY(resolve(ops_.size(), cursor.epoch(), block));
    out = out.subspan(block.size());
    // 128 bits, because two positions may be more than 2**63 apart.
    position =
        static_cast<std::int64_t>(position + Wide{further_steps + 1} * step);
  }
  return {};
}

Status KeyPlan::keys(std::span<std::int64_t> positions) const {
  if (positions.empty()) return {};
  if (length() == 0) return empty_plan_error();
  EpochCursor cursor(length());
  for (std::size_t first = 0; first < positions.size();) {
    cursor.move_to(positions[first]);
    const auto block_end = std::min(positions.size(), first + kBlockSize);
    auto last = first;
    for (; last < block_end && cursor.contains(positions[last]); ++last) {
      positions[last] = cursor.offset(positions[last]);
    }
    TRY(resolve(ops_.size(), cursor.epoch(),
                positions.subspan(first, last - first)));
    first = last;
  }
  return {};
}

// Replaces offsets by their keys.  The offsets are in epoch `epoch` of the view
// that the first `ops` operations create.
Status KeyPlan::resolve(std::size_t ops, Epoch epoch,
                        std::span<std::int64_t> offsets) const {
  for (; ops > 0; --ops) {
    const auto& op = ops_[ops - 1];
    switch (op.kind) {
      case Kind::kRange:
      case Kind::kShard:
      case Kind::kSlice:
        // Unsigned, because offset * step alone may need more than 64 bits.
        for (auto& offset : offsets) {
          offset = static_cast<std::int64_t>(
              static_cast<std::uint64_t>(op.first) +
              static_cast<std::uint64_t>(offset) *
                  static_cast<std::uint64_t>(op.step));
        }
        break;
      case Kind::kPositions:
        return add_epochs(op.length, epoch, offsets);
      case Kind::kShuffle: {
        const auto seed = op.seed + static_cast<std::uint32_t>(epoch);
        Permutation(op.length - 1, seed).apply(offsets);
        break;
      }
      case Kind::kRepeat:
        return resolve_repeat(ops, epoch, offsets);
    }
  }
  return {};
}

// An offset of a repetition spans several epochs of the view below.  This
// resolves each run of offsets in the same epoch below.
Status KeyPlan::resolve_repeat(std::size_t ops, Epoch epoch,
                               std::span<std::int64_t> offsets) const {
  const auto& op = ops_[ops - 1];
  const auto child_length = ops_[ops - 2].length;
  Epoch base = 0;
  if (__builtin_mul_overflow(epoch, Epoch{op.length}, &base) ||
      base > std::numeric_limits<Epoch>::max() - kMaxInt64) {
    return {Code::kOverflow, "the epoch exceeds 128 bits"};
  }
  auto first_child_epoch = base / child_length;
  auto base_offset = static_cast<std::int64_t>(base % child_length);
  if (base_offset < 0) {
    base_offset += child_length;
    --first_child_epoch;
  }
  // Unsigned, because shift + offset may need the 64th bit.
  const auto size = static_cast<std::uint64_t>(child_length);
  const auto offset_in_base = [base_offset](std::int64_t offset) {
    return static_cast<std::uint64_t>(base_offset) +
           static_cast<std::uint64_t>(offset);
  };
  for (std::size_t first = 0; first < offsets.size();) {
    const auto child_epochs = offset_in_base(offsets[first]) / size;
    auto last = first;
    // For an offset before this epoch, the difference wraps to a large value.
    for (; last < offsets.size(); ++last) {
      const auto offset = offset_in_base(offsets[last]) - child_epochs * size;
      if (offset >= size) break;
      offsets[last] = static_cast<std::int64_t>(offset);
    }
    const auto child_epoch =
        op.reseed ? first_child_epoch + static_cast<Epoch>(child_epochs)
                  : Epoch{0};
    TRY(resolve(ops - 1, child_epoch, offsets.subspan(first, last - first)));
    first = last;
  }
  return {};
}

}  // namespace gristmill
