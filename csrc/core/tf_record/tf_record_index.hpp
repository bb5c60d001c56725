// A TfRecordIndex knows where each record of a TFRecord file lies.
//
// The file has no list of its records: the first record says where the second
// begins, and so on.  Finding them all takes one pass over their heads.  An
// IndexFile keeps what was found, a record and its frame as a chunk.
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
  struct Place {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;

    // 0 also where somebody made up that there is no room for a frame.
    [[nodiscard]] std::uint64_t data_size() const {
      return std::max(end - begin, kFrameBytes) - kFrameBytes;
    }
  };

  // Finds the records of a file.  The list is loaded from the first of `kept`
  // that fits the file, or else made, comparing the checksum of each length,
  // and saved to the first that can be written.  Errors do not name the file.
  static Result<TfRecordIndex> read(const File& file,
                                    std::span<const std::string> kept,
                                    ScanProgress& progress);

  [[nodiscard]] std::uint64_t size() const { return places_.size(); }

  // Where the list is kept; empty if nowhere.
  [[nodiscard]] const std::string& path() const { return path_; }

  // REQUIRES: i < size().
  [[nodiscard]] Place place(std::uint64_t i) const {
    const auto chunk = places_.at(i);
    return {chunk.begin, chunk.end};
  }

  // Memory of the list.
  [[nodiscard]] std::size_t held_bytes() const { return places_.held_bytes(); }

 private:
  TfRecordIndex(PackedChunks places, std::string path)
      : places_(std::move(places)), path_(std::move(path)) {}

  PackedChunks places_;
  std::string path_;
};

}  // namespace gristmill
