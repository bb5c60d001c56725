// Decodes chunks whose records, protocol buffers, were transposed.
//
// The writer takes messages apart by field, so that equal fields compress
// together, and stores a state machine that puts them together again.
#pragma once

#include <cstddef>
#include <span>

#include "core/array_record/decoded_chunk.hpp"
#include "core/base/status.hpp"

namespace gristmill {

// Decodes the data of a transposed chunk.  It is safe for any bytes; it never
// writes more than the sizes allow, and ends in time bounded by them.
Status decode_transposed(std::span<const std::byte> data,
                         const ChunkSizes& sizes, DecodedChunk& to);

}  // namespace gristmill
