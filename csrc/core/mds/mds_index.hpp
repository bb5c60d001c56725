// An MdsIndex is the list of samples at the beginning of a shard of MosaicML
// Streaming.
//
// All numbers are little-endian:
//
//     bytes  contents
//         4  number of samples, N
//   4 N + 4  offset of each sample in the file, and the end of the last one
//         -  the columns as JSON, which the data set's index.json has, too
//         -  the samples
//
// The list of a local file is mapped, so that opening takes the same time for
// any number of samples, and processes share the pages.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/base/byte_buffer.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/span_index.hpp"

namespace gristmill {

class MdsIndex final : public SpanIndex {
 public:
  // The size of a shard, which the data set's index.json has.
  struct ShardSize {
    std::uint64_t samples = 0;
    std::uint64_t bytes = 0;
  };

  // Reads the list, unless the file is mapped.  Fails if the size of the file
  // is not `expected`.  Errors name the file.
  static Result<std::unique_ptr<const MdsIndex>> open(
      File::Ptr file, const ShardSize& expected);

  [[nodiscard]] std::uint64_t size() const override { return num_samples_; }
  [[nodiscard]] Span at(std::uint64_t i) const override;
  // Returns an empty string: the index is not in a file of its own.
  [[nodiscard]] const std::string& path() const override { return no_path_; }

 private:
  explicit MdsIndex(File::Ptr file) : file_(std::move(file)) {}
  // Sets the fields below `file_`.
  Status load(const ShardSize& expected);

  const std::string no_path_;
  const File::Ptr file_;
  ByteBuffer file_bytes_;  // The list, unless the file is mapped.

  std::uint64_t num_samples_ = 0;
  std::span<const std::byte> offsets_;  // The numbers are not checked.
};

}  // namespace gristmill
