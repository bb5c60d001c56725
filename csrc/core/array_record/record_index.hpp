// A RecordIndex knows where each chunk of an ArrayRecord file lies.
//
// The file ends in a postscript that says where the footer is, and the footer
// lists the chunks.  Only the packed list stays in memory.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/array_record/record_chunk.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/packed_chunks.hpp"

namespace gristmill {

struct RecordIndex {
  // Reads the index of an ArrayRecord file.  Errors do not name the file.
  static Result<RecordIndex> read(const File& file, Verify verify);

  [[nodiscard]] std::uint64_t num_chunks() const { return chunks.size(); }

  // How many records chunk i has.
  [[nodiscard]] std::uint64_t records_in(std::uint64_t i) const {
    return i + 1 < num_chunks() ? group_size : num_records - i * group_size;
  }

  std::uint64_t num_records = 0;
  std::uint64_t group_size = 1;  // Records in each chunk but the last.
  PackedChunks chunks;
  std::string
      options;  // Of the writer; files of before October 2022 have none.
};

}  // namespace gristmill
