// A TfRecordIndex knows where each record of a TFRecord file lies.
//
// The file has no list of its records: the first record says where the second
// begins, and so on.  Finding them all takes one pass over their heads; a
// TfRecordSidecar keeps what was found.
//
// Thread safety: const methods may overlap.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/packed_chunks.hpp"
#include "core/tf_record/tf_record_frame.hpp"

namespace gristmill {

// How far a pass over a file is; any thread may look, or end it early.
struct ScanProgress {
  std::atomic<std::uint64_t> done_bytes{0};
  std::atomic<bool> cancelled{false};
};

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

  // Makes an index of records that are added one by one.
  class Builder {
   public:
    Builder() = default;

    // Expects `records` calls of add(); a guess is enough.
    explicit Builder(std::uint64_t records) { places_.reserve(records); }

    // Adds the next record.  REQUIRES: it ends before 2^63.
    void add(std::uint64_t data_size);

    // Where the next record begins.
    [[nodiscard]] std::uint64_t end() const { return end_; }
    [[nodiscard]] std::uint64_t size() const { return places_.size(); }

    [[nodiscard]] TfRecordIndex finish() &&;

   private:
    PackedChunks places_;
    std::uint64_t end_ = 0;
  };

  // Finds the records of a file.  The checksum of each length is compared,
  // that of the data is not read.  Errors do not name the file.
  static Result<TfRecordIndex> scan(const File& file, ScanProgress& progress);

  [[nodiscard]] std::uint64_t size() const { return places_.size(); }

  // REQUIRES: i < size().
  [[nodiscard]] Place place(std::uint64_t i) const {
    const auto chunk = places_.at(i);
    return {chunk.begin, chunk.end};
  }

  // Memory of the list.
  [[nodiscard]] std::size_t held_bytes() const { return places_.held_bytes(); }

 private:
  explicit TfRecordIndex(PackedChunks places) : places_(std::move(places)) {}

  PackedChunks places_;
};

}  // namespace gristmill
