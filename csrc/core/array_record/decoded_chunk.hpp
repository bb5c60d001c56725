// A DecodedChunk is several records in one piece of memory.
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
  ByteBuffer values;                // The records, back to back.
  std::vector<std::uint64_t> ends;  // Where each record ends in `values`.

  [[nodiscard]] std::size_t count() const noexcept { return ends.size(); }

  // REQUIRES: i < count().
  [[nodiscard]] std::span<const std::byte> record(std::size_t i) const {
    assert(i < count());
    const std::uint64_t begin = i == 0 ? 0 : ends[i - 1];
    return values.all().subspan(begin, ends[i] - begin);
  }

  // Memory that the chunk holds.
  [[nodiscard]] std::size_t held_bytes() const noexcept {
    return values.all().size() + ends.capacity() * sizeof ends[0];
  }
};

// What a chunk says of itself to its decoder.
struct ChunkSizes {
  std::uint64_t num_records = 0;
  std::uint64_t decoded_size = 0;  // Of all records together.
};

// A part of a chunk after decompression: either memory of its own, or bytes
// of the chunk that were not compressed.
struct Unpacked {
  ByteBuffer own;
  std::span<const std::byte> bytes;

  [[nodiscard]] bool is_own() const { return bytes.data() == own.all().data(); }
};

// The parts of a chunk that is not transposed.
struct SimpleRecords {
  Unpacked sizes;   // Of the records, a varint each.
  Unpacked values;  // The records, back to back.
};

// Decompresses the parts of such a chunk from its data, which stay where they
// are as long as `to` is used.
Status unpack_simple(std::span<const std::byte> data, const ChunkSizes& sizes,
                     SimpleRecords& to);

// Decompresses a part of a chunk: a varint of the size, then the data; plain
// data come without the varint.  Fails if there are more than `most` bytes.
// `what` names the part in errors.
Status unpack(Codec codec, std::span<const std::byte> stored,
              std::uint64_t most, const char* what, Unpacked& to);

}  // namespace gristmill
