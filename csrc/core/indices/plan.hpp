// A KeyPlan maps each position of a view to a record key.
//
// It is a chain of the index operations of Grain's MapDataset (shard, shuffle,
// repeat, slice) on range(count) or positions(count).  The keys of positions()
// are positions in a view that is not a plan.  The length of a plan is one
// epoch, but every int64 is a valid position: position i is in epoch
// floor(i / length), so negative positions are in negative epochs.  A view has
// the epochs of the view below it.  A shuffle uses another seed in each epoch.
//
// Internally, a position is a pair (epoch, offset in the epoch), and most
// operations change only the offset.  So nothing overflows, and each epoch of a
// block of positions is prepared only once per block.
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
  // The length of an endless repetition, equal to Python's sys.maxsize.
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

  // One operation.  Fields that its kind does not use are 0.
  struct Op {
    Kind kind = Kind::kRange;
    std::int64_t length = 0;  // Positions in one epoch after this operation.
    // kRange, kShard, kSlice: offset k becomes first + k * step.
    std::int64_t first = 0;
    std::int64_t step = 0;
    std::int64_t epochs = 0;  // kRepeat: number of epochs, 0 for endless.
    std::uint32_t seed = 0;   // kShuffle: the seed of epoch 0.
    bool reseed = false;      // kRepeat: each epoch has its own seed.

    friend bool operator==(const Op&, const Op&) = default;
  };

  // Returns a plan of `count` keys: first, first + step, ....
  // Fails with kInvalidArgument if count < 0, and with kOverflow if a key does
  // not fit.
  static Result<KeyPlan> range(std::int64_t count, std::int64_t first,
                               std::int64_t step);

  // Returns a plan whose keys are the positions, with `count` keys in an epoch.
  // The key of offset k in epoch e is e * count + k.
  // Fails with kInvalidArgument if count < 0.
  static Result<KeyPlan> positions(std::int64_t count);

  // Restricts each epoch to the offsets [first, last).
  // Fails unless 0 <= first <= last <= length().
  [[nodiscard]] Result<KeyPlan> shard(std::int64_t first,
                                      std::int64_t last) const;

  // Permutes each epoch e with the seed (seed + e) mod 2**32.
  // Fails unless 0 <= seed < 2**32.
  [[nodiscard]] Result<KeyPlan> shuffle(std::int64_t seed) const;

  // Joins `epochs` epochs to one.  Without a number, joins infinitely many: the
  // length is then kEndless, or 0 if it was 0.  If `reseed` is false, all of
  // them are epoch 0.  Fails unless epochs > 0 and length() < kEndless, and
  // with kOverflow if the length does not fit.
  [[nodiscard]] Result<KeyPlan> repeat(std::optional<std::int64_t> epochs,
                                       bool reseed) const;

  // Takes `count` offsets of each epoch: first, first + step, ....  Fails
  // unless all of them are in [0, length()).
  [[nodiscard]] Result<KeyPlan> slice(std::int64_t first, std::int64_t step,
                                      std::int64_t count) const;

  // Returns the number of positions in an epoch, or kEndless after an endless
  // repetition.
  [[nodiscard]] std::int64_t length() const noexcept {
    return ops_.back().length;
  }

  // Returns the operations, starting with range() or positions().  Valid while
  // the plan exists.
  [[nodiscard]] std::span<const Op> ops() const noexcept { return ops_; }

  // Returns the key at `position`.  Fails with kDivideByZero if the plan is
  // empty, and with kOverflow if a key of positions() does not fit.  Also fails
  // with kOverflow if an epoch exceeds 128 bits, which is possible only with
  // nested slices of endless repetitions.
  [[nodiscard]] Result<std::int64_t> key(std::int64_t position) const;

  // Sets out[k] to the key at position first + k * step.  Fails like key(), and
  // with kOverflow if a position does not fit.  The contents of `out` are
  // undefined after an error.
  Status fill(std::int64_t first, std::int64_t step,
              std::span<std::int64_t> out) const;

  // Replaces each position by its key.  Adjacent positions in the same epoch
  // are resolved together.  Fails like key(); the contents of `positions` are
  // undefined after an error.
  Status keys(std::span<std::int64_t> positions) const;

  friend bool operator==(const KeyPlan&, const KeyPlan&) = default;

 private:
  __extension__ using Epoch = __int128;

  explicit KeyPlan(std::vector<Op> ops) : ops_(std::move(ops)) {}

  [[nodiscard]] KeyPlan append(const Op& op) const;
  Status resolve(std::size_t ops, Epoch epoch,
                 std::span<std::int64_t> offsets) const;
  Status resolve_repeat(std::size_t ops, Epoch epoch,
                        std::span<std::int64_t> offsets) const;

  std::vector<Op> ops_;  // Never empty.  The first one creates the keys.
};

}  // namespace gristmill
