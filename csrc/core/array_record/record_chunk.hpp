// Reads chunks of records from the raw bytes of a Riegeli file.
//
// A file consists of blocks of 64 KiB.  Each block begins with a header of 24
// bytes, which may interrupt a chunk anywhere.  A chunk consists of a header of
// 40 bytes and its data.  A ChunkView reads one chunk from bytes that the
// caller fetched.  Errors contain the offset in the file, but do not name the
// file.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/array_record/decoded_chunk.hpp"
#include "core/base/byte_buffer.hpp"
#include "core/base/highway_hash.hpp"
#include "core/base/status.hpp"
#include "core/files/file_reader.hpp"
#include "core/files/verify.hpp"

namespace gristmill {

inline constexpr std::uint64_t kBlockBytes = 65536;
inline constexpr std::uint64_t kBlockHeaderBytes = 24;
inline constexpr std::uint64_t kChunkHeaderBytes = 40;

// The type of a chunk that is not transposed.
inline constexpr std::uint8_t kSimple = 'r';

// A larger total size of records counts as damage.  Sums of sizes up to this
// limit cannot overflow.
inline constexpr std::uint64_t kMaxDecodedBytes = std::uint64_t{1} << 48;

// "Riegeli/" and "records\n", twice.
inline constexpr HighwayHash::Key kRiegeliKey = {
    0x2f696c6567656952, 0x0a7364726f636572, 0x2f696c6567656952,
    0x0a7364726f636572};

// Returns the file offset that is `count` bytes of chunk after `begin`.  The
// offset includes block headers; `count` does not.  The quotient is the number
// of block headers in between; one follows at once if `begin` starts a block.
// REQUIRES: both are below 2^60.
[[nodiscard]] constexpr std::uint64_t skip_bytes(std::uint64_t begin,
                                                 std::uint64_t count) {
  constexpr std::uint64_t usable = kBlockBytes - kBlockHeaderBytes;
  return begin + count +
         (count + (begin + usable - 1) % kBlockBytes) / usable *
             kBlockHeaderBytes;
}

// Returns "0x" and the hexadecimal digits.
[[nodiscard]] std::string hex(std::uint64_t value);

// Iterates over raw bytes and skips the block headers.
class BlockWalk {
 public:
  BlockWalk(const RawBytes& raw, Verify verify)
      : raw_(raw), position_(raw.begin), verify_(verify) {}

  // Returns the next bytes up to a block header, at most `max_bytes` of them.
  // Returns no bytes at the end, or after a block header with a wrong hash.
  std::span<const std::byte> next(std::uint64_t max_bytes);

  // Fills `to` with the next bytes.  Returns false if there are too few.
  [[nodiscard]] bool fill(std::span<std::byte> to);

  // Returns the error of the first bad block header passed so far.
  [[nodiscard]] const Status& status() const { return status_; }

  // Returns the offset in the file.
  [[nodiscard]] std::uint64_t position() const { return position_; }

 private:
  bool skip_header();

  RawBytes raw_;
  std::uint64_t position_;
  Verify verify_;
  Status status_;
};

struct ChunkHeader {
  std::uint64_t data_size = 0;
  std::uint64_t data_hash = 0;
  std::uint8_t type = 0;
  ChunkSizes sizes;
};

struct UncheckedRecord;

class ChunkView {
 public:
  // Reads the header of the chunk at the beginning of `raw`.  The chunk must
  // end at or before `limit`.  `raw` must outlive the view.  It may hold only a
  // part of the chunk: see is_complete().  REQUIRES: raw.begin <= limit.
  Status open(const RawBytes& raw, std::uint64_t limit, Verify verify);

  [[nodiscard]] const ChunkHeader& header() const { return header_; }

  // Return the file offsets of the beginning and the end of the data.
  [[nodiscard]] std::uint64_t data_begin() const { return data_begin_; }
  [[nodiscard]] std::uint64_t data_end() const { return data_end_; }

  // Returns true if `raw` holds the whole chunk.  The methods below need that.
  [[nodiscard]] bool is_complete() const { return raw_.end() >= data_end_; }

  // Copies the single record to `to`.  Sets `unchecked` if the caller must
  // still check the hash of the data.  `spare` is scratch memory.
  // REQUIRES: is_complete(); there is one record; `to` has decoded_size bytes.
  Status read_single_record(std::span<std::byte> to, ByteBuffer& spare,
                            std::optional<UncheckedRecord>& unchecked) const;

  // Decodes all records.  REQUIRES: is_complete().
  Status decode(DecodedChunk& to, ByteBuffer& spare) const;

  // Compares the hash of the data with the header's if `verify` is kAll.
  Status check_data(const HighwayHash& hash) const;

  // Prepends "chunk at offset ...: " to the message of an error.
  [[nodiscard]] Status add_chunk_context(const Status& status) const;

 private:
  Status read_header(std::uint64_t limit);
  [[nodiscard]] BlockWalk walk_data() const;
  Result<std::span<const std::byte>> find_data(ByteBuffer& spare) const;
  // Copies the single record of an uncompressed chunk directly to `to`.  Hashes
  // only the bytes before it; `unchecked` is for the rest.  REQUIRES: the data
  // size is not 0.
  Status copy_plain_record(std::span<std::byte> to,
                           std::optional<UncheckedRecord>& unchecked) const;
  // Like read_single_record() and decode(), but errors do not name the chunk.
  Status try_single_record(std::span<std::byte> to, ByteBuffer& spare,
                           std::optional<UncheckedRecord>& unchecked) const;
  Status try_decode(DecodedChunk& to, ByteBuffer& spare) const;

  RawBytes raw_;
  Verify verify_ = Verify::kAll;
  ChunkHeader header_;
  std::uint64_t data_begin_ = 0;
  std::uint64_t data_end_ = 0;
};

// A record whose hash is still to be checked.
struct UncheckedRecord {
  ChunkView view;    // For the header and errors; its raw bytes may be gone.
  HighwayHash hash;  // Hash of the chunk's data before the record.
  std::span<const std::byte> bytes;  // The record, where it was copied to.
  std::int64_t number = 0;           // Set by the caller: record in the file.
};

// Checks the hashes of records two at a time, because that is faster than one
// at a time.
class RecordHashChecker {
 public:
  // Adds a record, and may append its bytes to record.hash.  The bytes must
  // stay in place until it is checked.  If it or the record before it has a
  // wrong hash, fails and sets failed_record() to that record.
  Status add(UncheckedRecord& record);

  // Checks the last record if it is still unchecked.
  Status finish();

  // Returns the number of the record that the last error is about.
  [[nodiscard]] std::int64_t failed_record() const { return failed_record_; }

 private:
  Status check(const UncheckedRecord& record);

  std::optional<UncheckedRecord> unpaired_;  // Waits for another record.
  std::int64_t failed_record_ = -1;
};

}  // namespace gristmill
