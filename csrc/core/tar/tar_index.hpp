// A TarIndex holds the position of each sample of a tar file.
//
// The file has no list of its members, so finding them takes one pass over
// their headers.  An IndexFile stores the result.  Each sample is a chunk whose
// decoded size is the number of bytes of the sample in the file.
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

namespace gristmill {

class TarIndex {
 public:
  // A sample, from its first header to the end of its last member's data.
  struct ByteRange {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Finds the samples of a file.  Successive members whose names have the same
  // key form a sample.  Members without a key may lie between them.
  //
  // Loads the list from the first path of `index_paths` that has the index of
  // this file.  Otherwise, scans the file and saves the list to the first path
  // that can be written.  Errors do not name the file.
  static Result<TarIndex> read(const File& file,
                               std::span<const std::string> index_paths,
                               ScanProgress& progress);

  [[nodiscard]] std::uint64_t size() const { return places_.size(); }

  // REQUIRES: i < size().
  [[nodiscard]] ByteRange place(std::uint64_t i) const {
    const auto chunk = places_.at(i);
    // A wrong index must not lead outside of the file.
    return {chunk.begin, chunk.begin + std::min(chunk.decoded_size,
                                                chunk.end - chunk.begin)};
  }

  // Returns the size of the list in memory, in bytes.
  [[nodiscard]] std::size_t held_bytes() const { return places_.held_bytes(); }

 private:
  explicit TarIndex(PackedChunks places) : places_(std::move(places)) {}

  PackedChunks places_;
};

}  // namespace gristmill
