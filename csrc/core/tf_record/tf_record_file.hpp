// A TfRecordFile reads the records of a TFRecord file in any order.
//
// It finds them by an index, which is loaded from a file that all processes
// share, or made in one pass over the TFRecord file.
//
// Thread safety: const methods may overlap; the Sink is called by the thread
// that reads.
//
// Fork: the child may continue to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/file_reader.hpp"
#include "core/files/verify.hpp"
#include "core/tf_record/tf_record_index.hpp"

namespace gristmill {

class TfRecordFile final : public FileReader {
 public:
  struct Options {
    Verify verify = Verify::kAll;
    // Paths at which the index may be saved, see TfRecordIndex::read().
    std::vector<std::string> index_paths = {};
  };

  // Loads or makes the index.  All errors name the file and the offset of the
  // problem.
  static Result<std::shared_ptr<const TfRecordFile>> open(
      File::Ptr file, const Options& options, ScanProgress& progress);

  [[nodiscard]] std::uint64_t size() const override { return index_.size(); }
  [[nodiscard]] bool knows_sizes() const override { return true; }
  Status sizes(std::span<const Request> requests,
               std::span<std::int64_t> sizes) const override;
  Status read(std::span<const Request> requests, Sink& sink) const override;

  [[nodiscard]] const TfRecordIndex& index() const { return index_; }

 private:
  TfRecordFile(File::Ptr file, TfRecordIndex index, Verify verify)
      : FileReader(std::move(file)),
        index_(std::move(index)),
        verify_(verify) {}

  [[nodiscard]] TfRecordIndex::ByteRange place(std::int64_t record) const {
    return index_.place(static_cast<std::uint64_t>(record));
  }
  [[nodiscard]] Extent extent(std::int64_t record) const override {
    const auto range = place(record);
    return {range.begin, range.end};
  }
  [[nodiscard]] std::string describe(std::int64_t record) const override;
  Status deliver(const Request& request, std::span<const std::byte> frame,
                 Sink& sink) const;
  Status check_head(std::span<const std::byte> head,
                    std::uint64_t data_size) const;
  [[nodiscard]] std::string wrong_index_hint() const;

  const TfRecordIndex index_;
  const Verify verify_;
};

}  // namespace gristmill
