// DocumentLengths is a view of the numbers of tokens of documents.
//
// Thread safety: a plain view; the caller keeps the memory alive.
// total_lengths() uses a second thread for many lengths.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.hpp"
#include "core/base/varint.hpp"

namespace gristmill {

// A length at any address.
template <class Number>
struct LengthBytes {
  operator Number() const noexcept { return load_le<Number>(bytes.data()); }
  std::array<std::byte, sizeof(Number)> bytes;
};

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

  // Returns function(lengths) for a span of LengthBytes.
  template <class Function>
  auto visit(const Function& function) const {
    return width_ == 4 ? function(numbers<std::int32_t>())
                       : function(numbers<std::int64_t>());
  }

  // Copies the lengths of consecutive documents.
  // REQUIRES: first >= 0; first + to.size() <= size().
  void copy(std::int64_t first, std::span<std::int64_t> to) const noexcept {
    visit([&](const auto& lengths) {
      std::ranges::copy(
          lengths.subspan(static_cast<std::size_t>(first), to.size()),
          to.begin());
    });
  }

  // Replaces each document by its length.
  // REQUIRES: all documents are in [0, size()).
  void gather(std::span<std::int64_t> documents) const noexcept {
    visit([&](const auto& lengths) {
      for (auto& document : documents) {
        document = lengths[static_cast<std::size_t>(document)];
      }
    });
  }

 private:
  template <class Number>
  [[nodiscard]] std::span<const LengthBytes<Number>> numbers() const {
    return {reinterpret_cast<const LengthBytes<Number>*>(bytes_.data()),
            bytes_.size() / sizeof(Number)};
  }

  std::span<const std::byte> bytes_;
  std::size_t width_;
};

// Sums over all documents.
struct LengthTotals {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t longest = 0;  // Tokens of the longest document.
  std::int64_t empty_documents = 0;
  std::int64_t long_documents = 0;  // Longer than a row.
  std::int64_t long_tokens = 0;     // Tokens of the long documents.
  // Equal for equal lengths of the same width, on every machine.
  std::uint64_t hash = 0;
};

// Reads all lengths once.  Fails with kInvalidArgument if one is negative, and
// with kOverflow if one is at least 2**51 or the sum is at least 2**62.
Result<LengthTotals> total_lengths(const DocumentLengths& lengths,
                                   std::int64_t capacity);

}  // namespace gristmill
