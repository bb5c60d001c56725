// A Footer is the chunk of an ArrayRecord file that lists the others.
//
// The file ends in a postscript that says where the footer is.  The footer's
// first record counts what the file has, and each of the others is about a
// chunk.
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

// Where chunks may begin: the signature of the file comes first.
inline constexpr std::uint64_t kFirstChunk = 64;

class Footer {
 public:
  // What its first record says.
  struct Counts {
    std::uint64_t num_records = 0;
    std::uint64_t num_chunks = 0;
    // Of the writer; files of before October 2022 have none.
    std::string options;
  };

  // Finds the footer of a file, which must stay.  Where each read takes long,
  // it gets `most_ahead` bytes.
  static Result<Footer> find(const File& file, Verify verify,
                             std::uint64_t most_ahead);

  // Where the footer is, and all chunks that it lists end.
  [[nodiscard]] std::uint64_t offset() const { return offset_; }

  // How many chunks it should list.
  [[nodiscard]] std::uint64_t num_chunks() const {
    return chunk_.header().sizes.num_records - 1;
  }

  // The hash of the data, which tells one list from another.
  [[nodiscard]] std::uint64_t hash() const { return chunk_.header().data_hash; }

  // Reads what comes first, and compares no hash of the data.  Fails, too, if
  // nothing can be had of them before all are decompressed.
  Result<Counts> read_front();

  // Reads all records.  They stay where they are as long as `data` does.
  Status read(ByteBuffer& data, SimpleRecords& records);

  // Returns what a first record says.
  Result<Counts> parse_counts(std::span<const std::byte> record) const;

  // Adds to an error where the footer is.
  [[nodiscard]] Status placed(const Status& status) const;

 private:
  // Some of the data, without the headers of blocks.
  struct Part {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
  };

  Footer(FileTail tail, std::uint64_t offset, Verify verify)
      : tail_(std::move(tail)), offset_(offset), verify_(verify) {}

  Status open(std::uint64_t limit);
  Status read_data(ByteBuffer& data);
  Result<Counts> try_front();
  Result<std::size_t> unpack_front(Codec codec, const Part& part,
                                   std::span<std::byte> to);
  Status fetch(const Part& part, ByteBuffer& to);

  FileTail tail_;
  std::uint64_t offset_;
  Verify verify_;
  ChunkView chunk_;  // Of which there is only the header.
};

}  // namespace gristmill
