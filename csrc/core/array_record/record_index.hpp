// A RecordIndex knows where each chunk of an ArrayRecord file lies.
//
// The footer lists the chunks.  Only the packed list stays in memory.  How many
// records there are is had without it, at a thousandth of the cost.
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
  // Reads the index of an ArrayRecord file.  A long one is loaded from the
  // first of `kept` that fits the file, or else saved to the first that can be
  // written, so that all processes have it once.  Errors do not name the file.
  static Result<RecordIndex> read(const File& file, Verify verify,
                                  std::span<const std::string> kept = {});

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

struct RecordCount {
  // Reads how many records an ArrayRecord file has: no more of its footer than
  // that takes, unless something is wrong.  Errors do not name the file.
  static Result<RecordCount> read(const File& file, Verify verify);

  std::uint64_t num_records = 0;
  std::uint64_t num_chunks = 0;
  FileStamp stamp;
};

}  // namespace gristmill
