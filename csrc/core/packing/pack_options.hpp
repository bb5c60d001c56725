// The options of a PackPlan.
//
// Thread safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.hpp"
#include "core/packing/extra_features.hpp"
#include "core/packing/packed_window.hpp"
#include "core/packing/row_fit.hpp"
#include "core/tokens/document_lengths.hpp"

namespace gristmill {

struct PackOptions {
  std::int64_t capacity = 0;  // Tokens per row.
  PackMethod method = PackMethod::kBestFit;
  LongDocuments long_documents = LongDocuments::kCut;
  std::int64_t window = 0;  // The most documents of a window.
  // Features with lengths of their own.  The caller keeps the lengths alive.
  std::vector<ExtraFeature> extras = {};
  // The seed of the order of documents and rows, which keep their own order
  // without it.
  std::optional<std::uint32_t> seed = std::nullopt;
  std::int64_t epochs = 1;
  // The cost of a span of each length up to the capacity.  If it is not
  // empty, each `group_rows` consecutive rows have similar costs.
  std::vector<double> span_costs = {};
  std::int64_t group_rows = 1;
  // The file that keeps the numbers of rows, see window_ends_file.hpp; empty
  // for none.
  std::string counts_path = {};
};

// Fails with kInvalidArgument if an option is out of range.
Status check_pack_options(const PackOptions& options);

// Returns a hash of everything that determines the numbers of rows: the key of
// the file of counts.
std::uint64_t pack_counts_key(const PackOptions& options,
                              const LengthTotals& totals);

}  // namespace gristmill
