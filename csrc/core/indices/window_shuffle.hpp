// Shuffles positions within windows: each epoch is divided into windows, and
// each window is permuted with its own seed.
//
// The windows of all epochs are numbered consecutively, and window w uses the
// seed `seed + w`.  The last window of an epoch ends with the epoch, so each
// epoch is a permutation.  This is the only difference from Grain, whose
// windows may extend into the next epoch.
//
// Thread safety: any thread may call.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/status.hpp"

namespace gristmill {

// Replaces each position, any int64, by the position that the shuffle puts
// there.  Adjacent positions in the same window are shuffled together.
// Fails with kInvalidArgument unless window_size > 0, with kDivideByZero unless
// length > 0, with kOutOfRange if seed + w is not in [0, 2**32) for a window w,
// and with kOverflow if a new position does not fit.  The contents of
// `positions` are undefined after an error.
Status window_shuffle(std::span<std::int64_t> positions,
                      std::int64_t window_size, std::int64_t seed,
                      std::int64_t length);

}  // namespace gristmill
