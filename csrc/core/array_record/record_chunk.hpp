// Chunks of records, as they lie in a Riegeli file between block headers.
//
// A file is blocks of 64 KiB, each with a header of 24 bytes that may
// interrupt anything; a chunk is a header of 40 bytes and its data.  A
// ChunkView reads one chunk from bytes that somebody else fetched.  Errors say
// at which offset of the file, but not of which file.
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

// The type of a chunk that has its records one after another.
inline constexpr std::uint8_t kSimple = 'r';

// Sizes of records above this are taken for damage; sums of them do not wrap.
inline constexpr std::uint64_t kMaxDecodedBytes = std::uint64_t{1} << 48;

// "Riegeli/" and "records\n", twice.
inline constexpr HighwayHash::Key kRiegeliKey = {
    0x2f696c6567656952, 0x0a7364726f636572, 0x2f696c6567656952,
    0x0a7364726f636572};

// The file position `count` bytes of chunk after `begin`, headers of blocks
// included.  REQUIRES: both are below 2^60.
[[nodiscard]] constexpr std::uint64_t skip_bytes(std::uint64_t begin,
                                                 std::uint64_t count) {
  constexpr std::uint64_t usable = kBlockBytes - kBlockHeaderBytes;
  return begin + count +
         (count + (begin + usable - 1) % kBlockBytes) / usable *
             kBlockHeaderBytes;
}

// "0x" and the digits.
[[nodiscard]] std::string hex(std::uint64_t value);

// Walks over raw bytes and leaves the block headers out.
class BlockWalk {
 public:
  BlockWalk(const RawBytes& raw, Verify verify)
      : raw_(raw), at_(raw.begin), verify_(verify) {}

  // Returns the next bytes, at most `most`, that no header interrupts.
  // Empty at the end, and after a block header with a wrong hash.
  std::span<const std::byte> next(std::uint64_t most);

  // Fills `to` with the next bytes; false if there are too few.
  [[nodiscard]] bool fill(std::span<std::byte> to);

  // What is wrong with the block headers passed so far.
  [[nodiscard]] const Status& status() const { return status_; }

  // The offset in the file.
  [[nodiscard]] std::uint64_t position() const { return at_; }

 private:
  bool pass_header();

  RawBytes raw_;
  std::uint64_t at_;
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
  // Reads the header of the chunk that `raw` begins with; the chunk must end
  // at `limit` or before.  `raw` must outlive the view, and may hold less than
  // the chunk: see whole().
  Status open(const RawBytes& raw, std::uint64_t limit, Verify verify);

  [[nodiscard]] const ChunkHeader& header() const { return header_; }

  // Where the data begin and end in the file.
  [[nodiscard]] std::uint64_t data_begin() const { return data_begin_; }
  [[nodiscard]] std::uint64_t data_end() const { return data_end_; }

  // True if `raw` holds all of the chunk, as the methods below need.
  [[nodiscard]] bool whole() const { return raw_.end() >= data_end_; }

  // Writes the only record.  Sets `unchecked` if the hash of the data is still
  // to be compared.  `spare` is memory to work with.
  // REQUIRES: whole(); there is one record; `to` has decoded_size bytes.
  Status read_only_record(std::span<std::byte> to, ByteBuffer& spare,
                          std::optional<UncheckedRecord>& unchecked) const;

  // Decodes all records.  REQUIRES: whole().
  Status decode(DecodedChunk& to, ByteBuffer& spare) const;

  // Compares the hash of the data, if that is to be verified.
  Status check_data(const HighwayHash& hash) const;

  // Puts "chunk at offset ...: " before the message of an error.
  [[nodiscard]] Status placed(const Status& status) const;

 private:
  Status read_header(std::uint64_t limit);
  [[nodiscard]] BlockWalk walk_data() const;
  Result<std::span<const std::byte>> find_data(ByteBuffer& spare) const;
  Status copy_plain_record(std::span<std::byte> to,
                           std::optional<UncheckedRecord>& unchecked) const;
  Status try_only_record(std::span<std::byte> to, ByteBuffer& spare,
                         std::optional<UncheckedRecord>& unchecked) const;
  Status try_decode(DecodedChunk& to, ByteBuffer& spare) const;

  RawBytes raw_;
  Verify verify_ = Verify::kAll;
  ChunkHeader header_;
  std::uint64_t data_begin_ = 0;
  std::uint64_t data_end_ = 0;
};

// A record that was read, and whose hash is still to be compared.
struct UncheckedRecord {
  ChunkView view;    // Of which only the header is there.
  HighwayHash hash;  // Of what comes before the record in its chunk.
  std::span<const std::byte> bytes;
  std::int64_t number = 0;
};

// Compares records with their hashes as soon as there are two, because that is
// faster than one by one.
class RecordChecks {
 public:
  // Adds a record whose bytes stay where they are until it is checked.  Fails
  // if it, or the one before it, is bad().
  Status add(UncheckedRecord& record);

  // Checks the last record, if it was not.
  Status finish();

  // Number of the record that the last error is about.
  [[nodiscard]] std::int64_t bad() const { return bad_; }

 private:
  Status check(const UncheckedRecord& record);

  std::optional<UncheckedRecord> waiting_;
  std::int64_t bad_ = -1;
};

}  // namespace gristmill
