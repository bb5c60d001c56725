// A TarIndex knows where each sample of a tar file lies.
//
// The file has no list of its members: finding them takes one pass over their
// headers.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>

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
  // between them.  Errors do not name the file.
  static Result<TarIndex> scan(const File& file, ScanProgress& progress);

  [[nodiscard]] std::uint64_t size() const { return places_.size(); }

  // REQUIRES: i < size().
  [[nodiscard]] Place place(std::uint64_t i) const {
    const auto chunk = places_.at(i);
    return {chunk.begin, chunk.begin + chunk.decoded_size};
  }

  // Memory of the list.
  [[nodiscard]] std::size_t held_bytes() const { return places_.held_bytes(); }

 private:
  PackedChunks places_;
};

}  // namespace gristmill
