// A DecodedChunk holds the records of a chunk in one piece of memory.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/array_record/codec.hpp"
#include "core/base/byte_buffer.hpp"
#include "core/base/status.hpp"

namespace gristmill {

struct DecodedChunk {
  ByteBuffer values;                // The concatenated records.
  std::vector<std::uint64_t> ends;  // The end of each record in `values`.

  [[nodiscard]] std::size_t count() const noexcept { return ends.size(); }

  // REQUIRES: i < count().
  [[nodiscard]] std::span<const std::byte> record(std::size_t i) const {
    assert(i < count());
    const std::uint64_t begin = i == 0 ? 0 : ends[i - 1];
    return values.all().subspan(begin, ends[i] - begin);
  }

  // Returns the memory that the chunk holds, in bytes.
  [[nodiscard]] std::size_t held_bytes() const noexcept {
    return values.all().size() + ends.capacity() * sizeof ends[0];
  }
};

// Sizes from the header of a chunk.  The decoder checks the data against them.
struct ChunkSizes {
  std::uint64_t num_records = 0;
  std::uint64_t decoded_size = 0;  // Total bytes of the records.
};

// A decompressed part of a chunk.  Compressed data are decompressed to
// `buffer`; otherwise `bytes` points into the chunk.
struct UnpackedPart {
  ByteBuffer buffer;
  std::span<const std::byte> bytes;

  // Returns true if `bytes` are in `buffer`.
  [[nodiscard]] bool is_decompressed() const {
    return bytes.data() == buffer.all().data();
  }
};

// The two parts of a chunk that is not transposed.
struct SimpleRecords {
  UnpackedPart sizes;   // The size of each record, as a varint.
  UnpackedPart values;  // The concatenated records.
};

// Decompresses the parts of a chunk that is not transposed.  `data` must
// outlive `to`.
Status unpack_simple(std::span<const std::byte> data, const ChunkSizes& sizes,
                     SimpleRecords& to);

// Decompresses a part of a chunk: a varint with the decompressed size, then the
// data.  Uncompressed data have no varint.  Fails if the part decompresses to
// more than `max_bytes` bytes.  Errors call the part `part_name`.
Status unpack(Codec codec, std::span<const std::byte> stored,
              std::uint64_t max_bytes, const char* part_name, UnpackedPart& to);

}  // namespace gristmill
