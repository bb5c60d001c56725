// Finds the documents in a file of token ids.
//
// Thread safety: any thread may call this, also for the same file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/head_reader.hpp"
#include "core/files/span_index.hpp"

namespace gristmill {

// Defines the documents of a file.
struct DocumentRule {
  std::uint64_t begin = 0;  // Offset of the first token in the file.
  std::size_t width = 0;    // Bytes of a token: 1, 2, 4 or 8.
  std::uint64_t eos = 0;    // The token that ends a document.
  // If set, a document ends only if this token follows, or the file ends.
  std::optional<std::uint64_t> bos = std::nullopt;
};

// Returns the index of the documents, including the token that ends each.
// Tokens after the last end are a document of their own.
//
// Loads the index from the first of `index_paths` that has the index of this
// file and rule.  Otherwise, scans the file, and saves the index at the first
// path that can be written.  Errors do not name the file.
Result<std::unique_ptr<const SpanIndex>> document_index(
    const File& file, const DocumentRule& rule,
    std::span<const std::string> index_paths, ScanProgress& progress);

}  // namespace gristmill
