// DocumentLengths is a view of the numbers of tokens of documents.
//
// Thread safety: a plain view; the caller keeps the memory alive.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.hpp"
#include "core/base/varint.hpp"

namespace gristmill {

class DocumentLengths {
 public:
  // `bytes` has consecutive little-endian signed numbers of `width` bytes.  It
  // need not be aligned.
  // REQUIRES: width is 4 or 8, and divides the size of `bytes`.
  DocumentLengths(std::span<const std::byte> bytes, std::size_t width)
      : bytes_(bytes), width_(width) {
    assert((width == 4 || width == 8) && bytes.size() % width == 0);
  }

  [[nodiscard]] std::int64_t size() const noexcept {
    return static_cast<std::int64_t>(bytes_.size() / width_);
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return bytes_;
  }
  [[nodiscard]] std::size_t width() const noexcept { return width_; }

  // Copies the lengths of consecutive documents.
  // REQUIRES: first >= 0; first + to.size() <= size().
  void copy(std::int64_t first, std::span<std::int64_t> to) const noexcept {
    const auto* from = bytes_.data() + static_cast<std::size_t>(first) * width_;
    for (auto& length : to) {
      length = width_ == 4 ? load_le<std::int32_t>(from)
                           : load_le<std::int64_t>(from);
      from += width_;
    }
  }

  // Replaces each document by its length.
  // REQUIRES: all documents are in [0, size()).
  void gather(std::span<std::int64_t> documents) const noexcept {
    if (width_ == 4) {
      gather_numbers<std::int32_t>(documents);
    } else {
      gather_numbers<std::int64_t>(documents);
    }
  }

 private:
  template <class Number>
  void gather_numbers(std::span<std::int64_t> documents) const noexcept {
    for (auto& document : documents) {
      document = load_le<Number>(
          bytes_.data() + static_cast<std::size_t>(document) * sizeof(Number));
    }
  }

  std::span<const std::byte> bytes_;
  std::size_t width_;
};

// Sums over all documents.
struct LengthTotals {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t empty_documents = 0;
  std::int64_t long_documents = 0;  // Longer than a row.
  std::int64_t long_tokens = 0;     // Tokens of the long documents.
  // Equal for equal lengths, of either width, on every machine.
  std::uint64_t hash = 0;
};

// Reads all lengths once.  Fails with kInvalidArgument if one is negative, and
// with kOverflow if one is at least 2**51 or the sum is at least 2**63.
Result<LengthTotals> total_lengths(const DocumentLengths& lengths,
                                   std::int64_t capacity);

}  // namespace gristmill
