// A Footer is the chunk of an ArrayRecord file that lists the other chunks.
//
// The file ends in a postscript with the offset of the footer.  The first
// record of the footer holds the total counts of the file, and each other
// record describes one chunk.
//
// Errors do not name the file.
//
// Thread safety: none; a footer belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/array_record/file_tail.hpp"
#include "core/array_record/record_chunk.hpp"
#include "core/base/byte_buffer.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"

namespace gristmill {

// The lowest possible offset of a chunk.  The signature of the file precedes
// it.
inline constexpr std::uint64_t kFirstChunk = 64;

class Footer {
 public:
  // The contents of the first record.
  struct Counts {
    std::uint64_t num_records = 0;
    std::uint64_t num_chunks = 0;
    // The options of the writer; empty in files from before October 2022.
    std::string options;
  };

  // Finds the footer of a file, which must outlive it.  If the file has a high
  // latency, each read extends to at least `min_read_bytes` bytes.
  static Result<Footer> find(const File& file, Verify verify,
                             std::uint64_t min_read_bytes);

  // Returns the offset of the footer, which is also the end of the last chunk.
  [[nodiscard]] std::uint64_t offset() const { return offset_; }

  // Returns the number of chunks that the footer should list.
  [[nodiscard]] std::uint64_t num_chunks() const {
    return chunk_.header().sizes.num_records - 1;
  }

  // Returns the hash of the data.  It identifies this list of chunks.
  [[nodiscard]] std::uint64_t hash() const { return chunk_.header().data_hash; }

  // Reads only the first record and does not check the hash of the data.  Also
  // fails if the codec cannot decompress a prefix of the data.
  Result<Counts> read_front();

  // Reads all records.  They point into `data`, which must outlive them.
  Status read(ByteBuffer& data, SimpleRecords& records);

  // Parses the first record of the footer.
  Result<Counts> parse_counts(std::span<const std::byte> record) const;

  // Adds the offset of the footer to an error.
  [[nodiscard]] Status add_footer_context(const Status& status) const;

 private:
  // A range of the data.  Block headers do not count.
  struct Part {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
  };

  Footer(FileTail tail, std::uint64_t offset, Verify verify)
      : tail_(std::move(tail)), offset_(offset), verify_(verify) {}

  Status open(std::uint64_t limit);
  Status read_data(ByteBuffer& data);
  Result<Counts> parse_front();
  Result<std::size_t> unpack_front(Codec codec, const Part& part,
                                   std::span<std::byte> to);
  Status fetch(const Part& part, ByteBuffer& to);

  FileTail tail_;
  std::uint64_t offset_;
  Verify verify_;
  ChunkView chunk_;  // Holds only the header of the chunk.
};

}  // namespace gristmill
