// Features of documents that have lengths of their own, such as images.
//
// A plan cuts the first feature, the tokens.  It never cuts an extra feature:
// the row with a document's first token has all its cells.
//
// Thread safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/base/status.hpp"
#include "core/tokens/document_lengths.hpp"

namespace gristmill {

struct ExtraFeature {
  std::string name;         // For errors.
  DocumentLengths lengths;  // Cells of each document.
  std::int64_t capacity;    // Cells per row.
};

// Returns the totals of documents with a first feature, whose capacity is
// given, and extra features.  Documents are long if any feature is longer than
// a row, and empty if all are empty.  Tokens are the cells of the first
// feature. REQUIRES: each capacity is at least 1. Fails like total_lengths(),
// and with kInvalidArgument if a feature does not have as many lengths as the
// first one.
Result<LengthTotals> total_features(const DocumentLengths& lengths,
                                    std::int64_t capacity,
                                    std::span<const ExtraFeature> extras);

// Returns the error about an extra feature of a document that is longer than a
// row.
Status too_long_error(const ExtraFeature& extra, std::int64_t document,
                      std::int64_t length);

// Fails with too_long_error() for the first document that has an extra feature
// longer than a row.
Status check_extras_fit(std::span<const ExtraFeature> extras);

}  // namespace gristmill
