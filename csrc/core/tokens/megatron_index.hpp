// A MegatronIndex is the .idx file of a Megatron data set of tokens.
//
// All numbers are little-endian:
//
//   bytes  contents
//       9  "MMIDIDX", 0, 0
//       8  version, 1
//       1  code of the dtype of tokens
//       8  number of sequences, S
//       8  number of document boundaries, D: one more than there are documents
//     4 S  number of tokens of each sequence
//     8 S  offset of each sequence in the .bin file
//     8 D  number of the first sequence of each document, ascending from 0 to S
//       S  mode of each sequence; only in multimodal data sets
//
// A local file is mapped, so that opening takes the same time for any number of
// sequences, and processes share the pages.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/base/byte_buffer.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/span_index.hpp"

namespace gristmill {

class MegatronIndex final : public SpanIndex {
 public:
  // The meaning of a record.
  enum class Unit { kSequence, kDocument };

  // Reads the header and checks the size of the file.  Errors name the file.
  static Result<std::unique_ptr<const MegatronIndex>> open(File::Ptr file,
                                                           Unit unit);

  [[nodiscard]] std::uint64_t size() const override {
    return unit_ == Unit::kSequence ? num_sequences_ : num_documents_;
  }
  [[nodiscard]] Span at(std::uint64_t i) const override;
  // Returns the lengths in the file unless a document has several sequences or
  // none.
  [[nodiscard]] std::span<const std::byte> listed_lengths() const override;
  [[nodiscard]] std::uint64_t rule() const override;
  [[nodiscard]] const std::string& path() const override {
    return file_->path();
  }

  // Returns the code of the dtype, from 1 to 8.
  [[nodiscard]] int dtype_code() const { return dtype_code_; }

  // Returns the mode of each sequence; empty if the data set is not multimodal.
  [[nodiscard]] std::span<const std::byte> modes() const { return modes_; }

 private:
  explicit MegatronIndex(File::Ptr file, Unit unit)
      : file_(std::move(file)), unit_(unit) {}
  // Sets the fields below `file_bytes_` from the file.
  Status load();
  [[nodiscard]] Span sequence(std::uint64_t i) const;

  const File::Ptr file_;
  const Unit unit_;
  ByteBuffer file_bytes_;  // The file, unless it is mapped.

  int dtype_code_ = 0;
  std::uint64_t token_bytes_ = 0;
  std::uint64_t num_sequences_ = 0;
  std::uint64_t num_documents_ = 0;
  // The lists in the file; the numbers in them are not checked.
  std::span<const std::byte> lengths_;
  std::span<const std::byte> offsets_;
  std::span<const std::byte> documents_;
  std::span<const std::byte> modes_;
};

}  // namespace gristmill
