// The limits of a Bagz file: where each of its records ends.
//
// They are 64-bit little-endian numbers, which ascend, at the end of the file
// or in one of their own.  At the end of the file the last one is also where
// the limits begin.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/packed_chunks.hpp"

namespace gristmill {

class BagLimits {
 public:
  // Returns how many records there are, by one read at most.  `separate` is
  // the file of the limits; null if they are at the end of `records`.
  static Result<std::uint64_t> count(const File& records, const File* separate);

  // Reads all limits.
  static Result<BagLimits> read(const File& records, const File* separate);

  [[nodiscard]] std::uint64_t size() const { return places_.size(); }

  // Where a record lies in the file of the records.
  // REQUIRES: i < size().
  [[nodiscard]] PackedChunks::Chunk place(std::uint64_t i) const {
    return places_.at(i);
  }

  // Memory of the list.
  [[nodiscard]] std::size_t held_bytes() const { return places_.held_bytes(); }

 private:
  // Where they are.
  struct Section {
    const File* file;
    std::uint64_t begin;
    std::uint64_t count;
    std::uint64_t most;  // No limit is above it.
  };
  static Result<Section> find(const File& records, const File* separate);

  PackedChunks places_;
};

}  // namespace gristmill
