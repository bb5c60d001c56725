// Finds the starts of rows of fixed length in a concatenation of documents.
//
// Thread safety: pure functions; build_shuffled() uses a thread of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.hpp"
#include "core/tokens/document_lengths.hpp"
#include "core/tokens/row_rules.hpp"

namespace gristmill {

// The start of a row.  Word is uint32 or uint64.
template <class Word>
struct RowStart {
  Word position;  // The document's, in the order.
  Word offset;    // The first token's, in the document.
};

// The arrays that token_rows.hpp describes.
struct RowArrays {
  std::span<std::uint32_t> documents;
  std::span<std::byte> starts;
  std::span<std::uint32_t> order;
};

// Fills `starts` by the rule.  The other arrays must be empty.
Status build_chunked(const DocumentLengths& lengths, const ChunkRule& rule,
                     bool is_wide, const RowArrays& to);

// Fills the arrays by the rule.
Status build_shuffled(const DocumentLengths& lengths, const ShuffleRule& rule,
                      bool is_wide, const RowArrays& to);

}  // namespace gristmill
