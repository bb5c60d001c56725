// The limits of a Bagz file: the end of each record.
//
// They are ascending 64-bit little-endian numbers, at the end of the file or in
// a separate file.  At the end of the file, the last limit is also the offset
// at which the limits begin.
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
  // Returns the number of records, with one read at most.  `limits_file` is the
  // file with the limits, or null if they are at the end of `records`.
  static Result<std::uint64_t> count(const File& records,
                                     const File* limits_file);

  // Reads all limits.
  static Result<BagLimits> read(const File& records, const File* limits_file);

  [[nodiscard]] std::uint64_t size() const { return places_.size(); }

  // Returns the range of record `i` in the file of records.
  // REQUIRES: i < size().
  [[nodiscard]] PackedChunks::Chunk place(std::uint64_t i) const {
    return places_.at(i);
  }

  // Returns the size of the list in memory, in bytes.
  [[nodiscard]] std::size_t held_bytes() const { return places_.held_bytes(); }

 private:
  // The part of a file that has the limits.
  struct Section {
    const File* file;
    std::uint64_t begin;
    std::uint64_t count;
    std::uint64_t max_limit;  // The largest valid limit.
  };
  static Result<Section> find_section(const File& records,
                                      const File* limits_file);

  PackedChunks places_;
};

}  // namespace gristmill
