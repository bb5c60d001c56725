// A RecordIndex holds the offset of each chunk of an ArrayRecord file.
//
// It is read from the footer, which lists the chunks.  Only the packed list
// stays in memory.  RecordCount::read() counts the records without the list,
// which takes a thousandth of the time.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/array_record/record_chunk.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/file_stamp.hpp"
#include "core/files/packed_chunks.hpp"
#include "core/files/verify.hpp"

namespace gristmill {

struct RecordIndex {
  // Reads the index of an ArrayRecord file.  Loads a long index from the first
  // of `index_paths` that matches the file.  If none does, saves the index at
  // the first path that is writable, so that all processes share one copy.
  // Errors do not name the file.
  static Result<RecordIndex> read(
      const File& file, Verify verify,
      std::span<const std::string> index_paths = {});

  [[nodiscard]] std::uint64_t num_chunks() const { return chunks.size(); }

  // Returns the number of records in chunk i.
  [[nodiscard]] std::uint64_t records_in(std::uint64_t i) const {
    return i + 1 < num_chunks() ? group_size : num_records - i * group_size;
  }

  std::uint64_t num_records = 0;
  std::uint64_t group_size = 1;  // Records per chunk, except in the last one.
  PackedChunks chunks;
  // The options of the writer; empty in files from before October 2022.
  std::string options;
};

struct RecordCount {
  // Counts the records of an ArrayRecord file.  Reads only the beginning of the
  // footer, unless that fails.  Errors do not name the file.
  static Result<RecordCount> read(const File& file, Verify verify);

  std::uint64_t num_records = 0;
  std::uint64_t num_chunks = 0;
  FileStamp stamp;
};

}  // namespace gristmill
