// Shuffles positions within windows: each epoch is cut into windows, and each
// window permuted by a seed of its own.
//
// The windows of all epochs are numbered on from 0, window w takes the seed
// seed + w, and the last one of an epoch ends with it: every epoch is
// permuted.  It is Grain's window shuffle but for windows that Grain lets
// reach into the next epoch.
//
// Thread safety: any thread may call.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/status.hpp"

namespace gristmill {

// Replaces each position, any int64 in any order, by the one that comes in its
// place.  Neighbours of one window are shuffled together.
// Fails with kInvalidArgument unless window_size > 0, with kDivideByZero
// unless length > 0, with kOutOfRange if seed + w is not in [0, 2**32) for a
// window w, and with kOverflow if a position that comes in place of another
// does not fit; positions then holds anything.
Status window_shuffle(std::span<std::int64_t> positions,
                      std::int64_t window_size, std::int64_t seed,
                      std::int64_t length);

}  // namespace gristmill
