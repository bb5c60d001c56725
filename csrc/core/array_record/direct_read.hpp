// Reads a large uncompressed record from the file straight to its place.
//
// One system call scatters the file: block headers to one side, the record to
// where it belongs, so that its bytes are copied once.  Then records are
// compared with their hashes, two at a time because that is faster.
//
// Thread safety: the functions share nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/array_record/record_chunk.hpp"
#include "core/base/byte_buffer.hpp"
#include "core/base/highway_hash.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/packed_chunks.hpp"

namespace gristmill {

// True if the chunk, of one record, is large and has just the length that it
// has when it is not compressed.
[[nodiscard]] bool suits_direct_read(const PackedChunks::Chunk& chunk);

// A record that was read, and whose hash is still to be compared.
struct DirectRecord {
  ChunkView view;    // Of which only the header is there.
  HighwayHash hash;  // Of what comes before the record in its chunk.
  std::span<const std::byte> bytes;
};

// Reads the record of such a chunk.  Sets `read`, unless the chunk turns out
// to be of another form; then `to` holds anything and nothing was checked.
// REQUIRES: the file is not mapped; `to` has chunk.decoded_size bytes.
Status read_direct(const File& file, const PackedChunks::Chunk& chunk,
                   Verify verify, std::span<std::byte> to, ByteBuffer& spare,
                   std::optional<DirectRecord>& read);

// Compares records with their hashes, if that is to be verified, as soon as
// there are two; each has a number.
class DirectChecks {
 public:
  explicit DirectChecks(Verify verify) : verify_(verify) {}

  // Adds a record whose bytes stay where they are until it is checked.  Fails
  // if it, or the one before it, is bad().
  Status add(const DirectRecord& record, std::int64_t number);

  // Checks the last record, if it was not.
  Status finish();

  // Number of the record that the last error is about.
  [[nodiscard]] std::int64_t bad() const { return bad_; }

 private:
  struct Waiting {
    DirectRecord record;
    std::int64_t number = 0;
  };
  Status check(const Waiting& read);

  const Verify verify_;
  std::optional<Waiting> waiting_;
  std::int64_t bad_ = -1;
};

}  // namespace gristmill
