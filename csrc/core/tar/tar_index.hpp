// A TarIndex knows where each sample of a tar file lies.
//
// The file has no list of its members: finding them takes one pass over their
// headers.  An IndexFile keeps what was found, a sample as a chunk whose
// decoded size is that of its part of the file.
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
  // From the first header of a sample to the end of its last member's data.
  struct Place {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Finds the samples of a file.  Members are one sample if they follow each
  // other and their names have one key, whatever belongs to no sample may lie
  // between them.  The list is loaded from the first of `kept` that fits the
  // file, or else saved to the first that can be written.  Errors do not name
  // the file.
  static Result<TarIndex> read(const File& file,
                               std::span<const std::string> kept,
                               ScanProgress& progress);

  [[nodiscard]] std::uint64_t size() const { return places_.size(); }

  // REQUIRES: i < size().
  [[nodiscard]] Place place(std::uint64_t i) const {
    const auto chunk = places_.at(i);
    // What somebody made up does not lead out of the file.
    return {chunk.begin, chunk.begin + std::min(chunk.decoded_size,
                                                chunk.end - chunk.begin)};
  }

  // Memory of the list.
  [[nodiscard]] std::size_t held_bytes() const { return places_.held_bytes(); }

 private:
  explicit TarIndex(PackedChunks places) : places_(std::move(places)) {}

  PackedChunks places_;
};

}  // namespace gristmill
