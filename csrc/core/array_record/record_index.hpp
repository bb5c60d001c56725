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

class RecordIndex {
 public:
  // Reads the index of an ArrayRecord file.  Errors do not name the file.
  static Result<RecordIndex> read(const File& file, Verify verify);

  [[nodiscard]] std::uint64_t num_records() const { return num_records_; }
  [[nodiscard]] std::uint64_t num_chunks() const { return chunks_.size(); }

  // Records in each chunk but the last, which may have fewer.
  [[nodiscard]] std::uint64_t group_size() const { return group_size_; }

  // REQUIRES: i < num_chunks().
  [[nodiscard]] PackedChunks::Chunk chunk(std::uint64_t i) const {
    return chunks_.at(i);
  }
  [[nodiscard]] std::uint64_t records_in(std::uint64_t i) const {
    return i + 1 < num_chunks() ? group_size_ : num_records_ - i * group_size_;
  }

  // The options that the writer was given; files of before October 2022 do
  // not say.
  [[nodiscard]] const std::string& options() const { return options_; }

  // Memory of the list.
  [[nodiscard]] std::size_t held_bytes() const { return chunks_.held_bytes(); }

 private:
  friend class IndexBuilder;

  std::uint64_t num_records_ = 0;
  std::uint64_t group_size_ = 1;
  PackedChunks chunks_;
  std::string options_;
};

}  // namespace gristmill
