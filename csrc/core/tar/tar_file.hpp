// A TarFile reads the samples of a tar file, in any order: a record is the
// bytes of the file that TarSample takes apart.
//
// Thread safety: const methods may overlap; the Sink is called by the thread
// that reads.
//
// Fork: a child may go on reading.
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
    std::vector<std::string> kept = {};             // Where the index may be.
    std::optional<FileStamp> stamp = std::nullopt;  // That is wanted, if any.
  };

  // Loads its index from where it is kept, or makes it and keeps it there.
  // Every error names the file, and where in it something is not as expected.
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
    const auto at = index_.place(static_cast<std::uint64_t>(record));
    return {at.begin, at.end};
  }
  [[nodiscard]] std::string describe(std::int64_t record) const override;
  static Status deliver(const Request& request,
                        std::span<const std::byte> sample, Sink& sink);

  const TarIndex index_;
};

}  // namespace gristmill
