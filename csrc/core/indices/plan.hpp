// A KeyPlan says which record key stands at each position of a view.
//
// It is a chain of index operations, shard, shuffle, repeat and slice as
// Grain's MapDataset has them, over range(count) or over positions(count),
// whose keys are again positions: those of a view that is not a plan.  A
// plan's length is one epoch, but every int64 is a position: position i lies
// in epoch floor(i / length), negative positions in negative epochs, and the
// epoch of a view is the epoch of the view below it.  A shuffle takes a new
// seed in each epoch.
//
// Inside, a position is a pair (epoch, offset in the epoch), which most
// operations change only in its offset: nothing overflows, and the epochs
// that a block of positions crosses are set up once per block.
//
// Thread safety: immutable, any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/status.hpp"

namespace gristmill {

class KeyPlan {
 public:
  // The length of an endless repetition, Python's sys.maxsize.
  static constexpr std::int64_t kEndless =
      std::numeric_limits<std::int64_t>::max();

  enum class Kind : std::uint8_t {
    kRange,
    kPositions,
    kShard,
    kShuffle,
    kRepeat,
    kSlice
  };

  // One operation.  The fields that a kind does not name are 0.
  struct Op {
    Kind kind = Kind::kRange;
    std::int64_t length = 0;  // Positions in one epoch after this operation.
    std::int64_t first = 0;   // kRange, kShard, kSlice: what offset 0 becomes.
    std::int64_t step = 0;    // kRange, kShard, kSlice: and each one after.
    std::int64_t epochs = 0;  // kRepeat: how many, 0 for endless.
    std::uint32_t seed = 0;   // kShuffle: the seed of epoch 0.
    bool reseed = false;      // kRepeat: whether epochs differ.

    friend bool operator==(const Op&, const Op&) = default;
  };

  // Keys first, first + step, ..., `count` of them.
  // Fails with kInvalidArgument if count < 0, with kOverflow if a key does
  // not fit.
  static Result<KeyPlan> range(std::int64_t count, std::int64_t first,
                               std::int64_t step);

  // Keys that are the positions themselves, epochs of `count` of them: the key
  // of offset k in epoch e is e * count + k.
  // Fails with kInvalidArgument if count < 0.
  static Result<KeyPlan> positions(std::int64_t count);

  // Restricts each epoch to the offsets [first, last).
  // Fails unless 0 <= first <= last <= length().
  [[nodiscard]] Result<KeyPlan> shard(std::int64_t first,
                                      std::int64_t last) const;

  // Permutes each epoch e with the seed (seed + e) mod 2**32.
  // Fails unless 0 <= seed < 2**32.
  [[nodiscard]] Result<KeyPlan> shuffle(std::int64_t seed) const;

  // Makes one epoch of `epochs` epochs, or of endlessly many: the length is
  // then kEndless, or 0 if it was 0.  Without `reseed` every one of them is
  // epoch 0.  Fails unless epochs > 0 and length() < kEndless, and with
  // kOverflow if the length does not fit.
  [[nodiscard]] Result<KeyPlan> repeat(std::optional<std::int64_t> epochs,
                                       bool reseed) const;

  // Takes the offsets first, first + step, ..., `count` of them, of each
  // epoch.  Fails unless all of them are in [0, length()).
  [[nodiscard]] Result<KeyPlan> slice(std::int64_t first, std::int64_t step,
                                      std::int64_t count) const;

  // Positions in one epoch, kEndless after an endless repetition.
  [[nodiscard]] std::int64_t length() const noexcept {
    return ops_.back().length;
  }

  // The operations, the range first.  Valid as long as the plan.
  [[nodiscard]] std::span<const Op> ops() const noexcept { return ops_; }

  // Returns the key at `position`.  Fails with kDivideByZero if the plan is
  // empty, and with kOverflow if a key of positions() does not fit, or if an
  // epoch leaves 128 bits, which takes several nested slices of endless
  // repetitions.
  [[nodiscard]] Result<std::int64_t> key(std::int64_t position) const;

  // Sets out[k] to the key at position first + k * step.  Fails as key()
  // does, and with kOverflow if a position does not fit; out then holds
  // anything.
  Status fill(std::int64_t first, std::int64_t step,
              std::span<std::int64_t> out) const;

  // Replaces each position, in any order, by its key.  Neighbours of one epoch
  // are resolved together.  Fails as key() does; positions then holds anything.
  Status keys(std::span<std::int64_t> positions) const;

  friend bool operator==(const KeyPlan&, const KeyPlan&) = default;

 private:
  __extension__ using Epoch = __int128;

  explicit KeyPlan(std::vector<Op> ops) : ops_(std::move(ops)) {}

  [[nodiscard]] KeyPlan with(const Op& op) const;
  Status resolve(std::size_t ops, Epoch epoch,
                 std::span<std::int64_t> offsets) const;
  Status resolve_repeat(std::size_t ops, Epoch epoch,
                        std::span<std::int64_t> offsets) const;

  std::vector<Op> ops_;  // Never empty; the first, only, makes keys.
};

}  // namespace gristmill
