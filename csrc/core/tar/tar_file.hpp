// A TarFile reads the samples of a tar file in any order.  A record is a range
// of the file, which TarSample parses.
//
// Thread safety: const methods may overlap; the Sink is called by the thread
// that reads.
//
// Fork: the child may continue to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/file_reader.hpp"
#include "core/files/file_stamp.hpp"
#include "core/tar/tar_index.hpp"

namespace gristmill {

class TarFile final : public FileReader {
 public:
  struct Options {
    // Paths at which the index may be saved, see TarIndex::read().
    std::vector<std::string> index_paths = {};
    // If set, open() fails unless the file has this stamp.
    std::optional<FileStamp> stamp = std::nullopt;
  };

  // Loads the index from one of the paths, or makes it and saves it there.
  // All errors name the file and the offset of the problem.
  static Result<std::shared_ptr<const TarFile>> open(File::Ptr file,
                                                     const Options& options,
                                                     ScanProgress& progress);

  [[nodiscard]] std::uint64_t size() const override { return index_.size(); }
  [[nodiscard]] bool knows_sizes() const override { return true; }
  Status sizes(std::span<const Request> requests,
               std::span<std::int64_t> sizes) const override;
  Status read(std::span<const Request> requests, Sink& sink) const override;

  [[nodiscard]] const TarIndex& index() const { return index_; }

 private:
  TarFile(File::Ptr file, TarIndex index)
      : FileReader(std::move(file)), index_(std::move(index)) {}

  [[nodiscard]] Extent extent(std::int64_t record) const override {
    const auto range = index_.place(static_cast<std::uint64_t>(record));
    return {range.begin, range.end};
  }
  [[nodiscard]] std::string describe(std::int64_t record) const override;
  static Status deliver(const Request& request,
                        std::span<const std::byte> sample, Sink& sink);

  const TarIndex index_;
};

}  // namespace gristmill
