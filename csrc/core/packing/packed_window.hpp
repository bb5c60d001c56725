// A PackedWindow is the rows of one window of documents.
//
// Thread safety: pure functions, and a value that is immutable after
// construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/status.hpp"
#include "core/packing/document_windows.hpp"
#include "core/packing/extra_features.hpp"
#include "core/packing/row_fit.hpp"
#include "core/tokens/document_lengths.hpp"

namespace gristmill {

// The rule for documents that are longer than a row.
enum class LongDocuments : std::uint8_t {
  kCut,   // Full rows, and a piece with the remaining tokens.
  kDrop,  // They are in no row.
};

// The rule that assigns the documents of a window to rows.
struct PackRule {
  // The largest capacity.  Scratch memory is proportional to it.
  static constexpr std::int64_t kMaxCapacity = std::int64_t{1} << 24;

  std::uint32_t capacity = 0;  // Tokens per row.
  PackMethod method = PackMethod::kBestFit;
  LongDocuments long_documents = LongDocuments::kCut;
  // Features with lengths of their own.  The caller keeps them alive.
  std::span<const ExtraFeature> extras = {};
};

class PackedWindow {
 public:
  // Tokens [begin, begin + length) of the document at an offset in the window.
  // The span with begin 0 also has all cells of its extra features.
  struct Span {
    std::int64_t begin = 0;
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
  };

  // Packs the documents.  Rows are in no particular order; the spans of a row
  // are in the order of the documents in the window.
  // Fails if the window has 2**31 pieces or more, and if an extra feature is
  // longer than a row and long documents are not dropped.
  static Result<PackedWindow> pack(const PackRule& rule,
                                   const DocumentLengths& lengths,
                                   const DocumentWindows& windows,
                                   const DocumentWindows::Window& window);

  // Returns the number of rows of pack(), in less time.  Fails like pack().
  static Result<std::int64_t> count_rows(const PackRule& rule,
                                         const DocumentLengths& lengths,
                                         const DocumentWindows& windows,
                                         const DocumentWindows::Window& window);

  [[nodiscard]] std::size_t num_rows() const noexcept {
    return row_begins_.size() - 1;
  }
  [[nodiscard]] std::span<const Span> row(std::size_t number) const noexcept {
    return std::span(spans_).subspan(
        row_begins_[number], row_begins_[number + 1] - row_begins_[number]);
  }

  // Replaces the spans of row numbers[i] by rows[i].
  // REQUIRES: `numbers` has different rows; there is one of `rows` for each.
  void replace(std::span<const std::uint32_t> numbers,
               std::span<const std::vector<Span>> rows);

  // Puts row order[i] at i.  REQUIRES: `order` is a permutation of the rows.
  void reorder(std::span<const std::uint32_t> order);

 private:
  static PackedWindow concatenate(std::span<const std::span<const Span>> rows);

  // The spans of row r are those from row_begins_[r] to row_begins_[r + 1].
  std::vector<Span> spans_;
  std::vector<std::uint32_t> row_begins_;
};

}  // namespace gristmill
