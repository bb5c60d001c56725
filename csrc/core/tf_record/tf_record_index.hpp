// A TfRecordIndex holds the position of each record of a TFRecord file.
//
// The file has no list of its records.  Only the length of a record determines
// where the next one begins, so finding all of them takes one pass over their
// heads.  An IndexFile stores the result.  Each record with its frame is a
// chunk.
//
// Thread safety: const methods may overlap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/head_reader.hpp"
#include "core/files/packed_chunks.hpp"
#include "core/tf_record/tf_record_frame.hpp"

namespace gristmill {

class TfRecordIndex {
 public:
  // A record and its frame.
  struct ByteRange {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;

    // Also 0 if a wrong index leaves no room for a frame.
    [[nodiscard]] std::uint64_t data_size() const {
      return std::max(end - begin, kFrameBytes) - kFrameBytes;
    }
  };

  // Finds the records of a file.
  //
  // Loads the list from the first path of `index_paths` that has the index of
  // this file.  Otherwise, scans the file, verifying the checksum of each
  // length, and saves the list to the first path that can be written.  Errors
  // do not name the file.
  static Result<TfRecordIndex> read(const File& file,
                                    std::span<const std::string> index_paths,
                                    ScanProgress& progress);

  [[nodiscard]] std::uint64_t size() const { return places_.size(); }

  // Returns the path of the saved list, or an empty string if it is not saved.
  [[nodiscard]] const std::string& path() const { return path_; }

  // REQUIRES: i < size().
  [[nodiscard]] ByteRange place(std::uint64_t i) const {
    const auto chunk = places_.at(i);
    return {chunk.begin, chunk.end};
  }

  // Returns the size of the list in memory, in bytes.
  [[nodiscard]] std::size_t held_bytes() const { return places_.held_bytes(); }

 private:
  TfRecordIndex(PackedChunks places, std::string path)
      : places_(std::move(places)), path_(std::move(path)) {}

  PackedChunks places_;
  std::string path_;
};

}  // namespace gristmill
