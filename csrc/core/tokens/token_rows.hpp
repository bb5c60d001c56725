// TokenRows lists the tokens of rows of fixed length, which are cut from the
// concatenation of documents, in any order.
//
// The list is three arrays of an ArrayFile:
//
//   documents  uint32: the order in which the documents are concatenated; empty
//              if they follow each other by number
//   starts     for each row in the order of the tokens, a position in that
//              order and an offset in its document: two uint32, or two uint64
//              if a number may be 2**31 or more
//   order      uint32: the row that is served in place of each; empty if rows
//              are served in the order of their tokens
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.hpp"
#include "core/files/array_file.hpp"
#include "core/tokens/document_lengths.hpp"
#include "core/tokens/row_rules.hpp"

namespace gristmill {

// Spans of tokens of documents, by row.
struct RowSpans {
  // The first span of each row, and the number of spans.
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> documents;
  std::vector<std::int64_t> begins;
  std::vector<std::int64_t> ends;
};

class TokenRows {
 public:
  // Loads the list, or builds and saves it.  `owner` keeps the lengths alive.
  // `longest` is the largest length.
  // REQUIRES: row_tokens > 0; no length is negative.
  static Result<TokenRows> chunked(const DocumentLengths& lengths,
                                   std::shared_ptr<const void> owner,
                                   std::int64_t longest, const ChunkRule& rule,
                                   const ArrayFile::Place& place);

  // Likewise.
  // REQUIRES: first_epochs <= epochs; first_rows <= rows; less than 2**32 rows,
  // and documents in all epochs.
  static Result<TokenRows> shuffled(const DocumentLengths& lengths,
                                    std::shared_ptr<const void> owner,
                                    std::int64_t longest,
                                    const ShuffleRule& rule,
                                    const ArrayFile::Place& place);

  [[nodiscard]] std::size_t size() const { return rows_; }

  // Returns the spans of some rows.  Each span has at least one token.  A row
  // has fewer tokens than the others if the documents end.  Fails if the list
  // is damaged.
  // REQUIRES: 0 <= key < size() for each key.
  [[nodiscard]] Result<RowSpans> spans(
      std::span<const std::int64_t> keys) const;

  // Returns an array of the list, for tests.
  [[nodiscard]] std::span<const std::byte> array(std::size_t i) const {
    return arrays_.array(i);
  }

  // See ArrayFile.
  [[nodiscard]] bool has_file() const noexcept { return arrays_.has_file(); }
  [[nodiscard]] const std::string& path() const { return arrays_.path(); }

 private:
  TokenRows(DocumentLengths lengths, std::shared_ptr<const void> owner,
            ArrayFile arrays, std::size_t rows, std::int64_t tokens,
            bool is_wide);

  template <class Length, class Word>
  [[nodiscard]] Status add_row(std::span<const Length> lengths,
                               std::int64_t key, RowSpans& to) const;

  const DocumentLengths lengths_;
  const std::shared_ptr<const void> owner_;
  const ArrayFile arrays_;
  const std::size_t rows_;
  const std::int64_t tokens_;  // The length of a row.
  const bool is_wide_;         // Numbers of starts are uint64.
};

}  // namespace gristmill
