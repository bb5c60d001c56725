// A SpanIndex lists the range of bytes of each record of a file whose records
// have no headers.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "core/files/packed_chunks.hpp"

namespace gristmill {

class SpanIndex {
 public:
  // Offsets in the file.
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  SpanIndex() = default;
  SpanIndex(const SpanIndex&) = delete;
  SpanIndex& operator=(const SpanIndex&) = delete;
  virtual ~SpanIndex() = default;

  // Returns the number of records.
  [[nodiscard]] virtual std::uint64_t size() const = 0;

  // Returns the span of record i.  If the index is damaged, the span may lie
  // outside of the file, or its end before its begin.
  // REQUIRES: i < size().
  [[nodiscard]] virtual Span at(std::uint64_t i) const = 0;

  // Returns the number of record i in the file.  It differs from i if the index
  // lists only some records.
  [[nodiscard]] virtual std::uint64_t number(std::uint64_t i) const {
    return i;
  }

  // Returns the list of the lengths of all records in items, int32, if the
  // index contains it and otherwise an empty span.  The lengths are not checked
  // and not aligned.
  [[nodiscard]] virtual std::span<const std::byte> listed_lengths() const {
    return {};
  }

  // Returns a hash of everything that determines the spans, apart from the
  // file.
  [[nodiscard]] virtual std::uint64_t rule() const { return 0; }

  // Returns the path of the index file, or an empty string if the index is not
  // in a file.
  [[nodiscard]] virtual const std::string& path() const = 0;
};

// The records that a scan of the file found.  Each chunk of the list is a
// record of `decoded_size` bytes and the bytes that separate it from the next
// one.
class ScannedIndex final : public SpanIndex {
 public:
  // `rule` is a hash of the options of the scan.
  ScannedIndex(PackedChunks records, std::string path, std::uint64_t rule = 0)
      : records_(std::move(records)), path_(std::move(path)), rule_(rule) {}

  [[nodiscard]] std::uint64_t size() const override { return records_.size(); }
  [[nodiscard]] Span at(std::uint64_t i) const override {
    const PackedChunks::Chunk record = records_.at(i);
    return {record.begin, record.begin + record.decoded_size};
  }
  [[nodiscard]] std::uint64_t rule() const override { return rule_; }
  [[nodiscard]] const std::string& path() const override { return path_; }

 private:
  const PackedChunks records_;
  const std::string path_;
  const std::uint64_t rule_;
};

}  // namespace gristmill
