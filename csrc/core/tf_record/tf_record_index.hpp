// A TfRecordIndex knows where each record of a TFRecord file lies.
//
// The file has no list of its records: the first record says where the second
// begins, and so on.  Finding them all takes one pass over their heads; a
// sidecar keeps what was found.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>

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

    [[nodiscard]] std::uint64_t data_size() const {
      return end - begin - kFrameBytes;
    }
  };

  // Finds the records of a file.  The checksum of each length is compared,
  // that of the data is not read.  Errors do not name the file.
  static Result<TfRecordIndex> scan(const File& file, ScanProgress& progress);

  // Adds the next record.  REQUIRES: it ends before 2^63; finish() was not
  // called.
  void add(std::uint64_t data_size) {
    places_.add(end_, 0);
    end_ += kFrameBytes + data_size;
  }
  void finish() { places_.finish(end_); }

  // Where the last record ends.
  [[nodiscard]] std::uint64_t end() const { return end_; }

  [[nodiscard]] std::uint64_t size() const { return places_.size(); }

  // REQUIRES: i < size(); finish() was called.
  [[nodiscard]] Place place(std::uint64_t i) const {
    const auto chunk = places_.at(i);
    return {chunk.begin, chunk.end};
  }

  // Memory of the list.
  [[nodiscard]] std::size_t held_bytes() const { return places_.held_bytes(); }

 private:
  PackedChunks places_;
  std::uint64_t end_ = 0;
};

}  // namespace gristmill
