// A BagFile reads the records of a Bagz file in any order.
//
// Thread safety: const methods may overlap; the Sink is called by the thread
// that reads.
//
// Fork: the child may continue to read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/bag/bag_limits.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/file_reader.hpp"
#include "core/files/file_stamp.hpp"

namespace gristmill {

class BagFile final : public FileReader {
 public:
  struct Options {
    File::Ptr limits;         // Null if the limits are at the end of the file.
    bool compressed = false;  // Whether each record is compressed with zstd.
    // If set, open() fails unless the file has this stamp.
    std::optional<FileStamp> stamp = std::nullopt;
  };

  // Reads the limits of the file.  All errors name the file.
  static Result<std::shared_ptr<const BagFile>> open(File::Ptr file,
                                                     const Options& options);

  [[nodiscard]] std::uint64_t size() const override { return limits_.size(); }
  [[nodiscard]] bool knows_sizes() const override { return !compressed_; }
  Status sizes(std::span<const Request> requests,
               std::span<std::int64_t> sizes) const override;
  Status read(std::span<const Request> requests, Sink& sink) const override;

  [[nodiscard]] const BagLimits& limits() const { return limits_; }

 private:
  BagFile(File::Ptr file, BagLimits limits, bool compressed)
      : FileReader(std::move(file)),
        limits_(std::move(limits)),
        compressed_(compressed) {}

  [[nodiscard]] Extent extent(std::int64_t record) const override {
    const auto range = limits_.place(static_cast<std::uint64_t>(record));
    return {range.begin, range.end};
  }
  [[nodiscard]] std::string describe(std::int64_t record) const override;
  Status read_stored(
      std::span<const Request> requests,
      const std::function<Status(const Request&, std::span<const std::byte>)>&
          deliver) const;

  const BagLimits limits_;
  const bool compressed_;
};

}  // namespace gristmill
