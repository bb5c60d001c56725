// Reads a large uncompressed record from the file straight to its place.
//
// One system call scatters the file: block headers to one side, the record to
// where it belongs, so that its bytes are copied once.
//
// Thread safety: the functions share nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/byte_buffer.hpp"
#include "core/file.hpp"
#include "core/packed_chunks.hpp"
#include "core/record_chunk.hpp"
#include "core/status.hpp"

namespace gristmill {

// True if the chunk, of one record, is large and has just the length that it
// has when it is not compressed.
[[nodiscard]] bool suits_direct_read(const PackedChunks::Chunk& chunk);

// Reads the record of such a chunk.  Sets `done`, unless the chunk turns out
// to be of another form; then `to` holds anything and nothing was checked.
// REQUIRES: the file is not mapped; `to` has chunk.decoded_size bytes.
Status read_direct(const File& file, const PackedChunks::Chunk& chunk,
                   Verify verify, std::span<std::byte> to, ByteBuffer& spare,
                   bool& done);

}  // namespace gristmill
