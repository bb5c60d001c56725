// A SpanFile reads the records that a SpanIndex lists, in any order.
//
// Thread safety: const methods may overlap; the Sink is called by the thread
// that reads.
//
// Fork: the child may continue to read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/file_reader.hpp"
#include "core/files/span_index.hpp"

namespace gristmill {

class SpanFile final : public FileReader {
 public:
  // `noun` is the name of a record in errors, such as "line".
  SpanFile(std::shared_ptr<const File> file,
           std::shared_ptr<const SpanIndex> index, std::string noun)
      : FileReader(std::move(file)),
        index_(std::move(index)),
        noun_(std::move(noun)) {}

  [[nodiscard]] std::uint64_t size() const override { return index_->size(); }
  [[nodiscard]] bool knows_sizes() const override { return true; }
  Status sizes(std::span<const Request> requests,
               std::span<std::int64_t> sizes) const override;
  Status read(std::span<const Request> requests, Sink& sink) const override;
  [[nodiscard]] bool has_views() const override {
    // An empty file cannot be mapped, and nothing is copied from it.
    return !file().mapped().empty() || file().size() == 0;
  }
  Status views(std::span<const Request> requests,
               std::span<View> views) const override;
  [[nodiscard]] Result<std::shared_ptr<const RecordReader>> slices(
      std::span<const Slice> slices, std::uint64_t item_bytes) const override;

  // Sets lengths[i] to the number of items of record first + i, of `item_bytes`
  // bytes each.  Reads no record.
  // REQUIRES: first + lengths.size() <= size().
  Status lengths(std::uint64_t item_bytes, std::uint64_t first,
                 std::span<std::int64_t> lengths) const;

  [[nodiscard]] const SpanIndex& index() const { return *index_; }

 private:
  // Clamps the span of a damaged index to the file.
  [[nodiscard]] Extent extent(std::int64_t record) const override;
  [[nodiscard]] std::string describe(std::int64_t record) const override;
  // Fails if the index is damaged: the span of the record is not in the file.
  [[nodiscard]] Status check(std::int64_t record) const;

  const std::shared_ptr<const SpanIndex> index_;
  const std::string noun_;
};

}  // namespace gristmill
