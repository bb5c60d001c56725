// Keeps the lengths of the records of several files in an ArrayFile, so that
// all processes share them.
//
// Thread safety: pure functions; any process may call them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.hpp"
#include "core/files/array_file.hpp"
#include "core/files/span_file.hpp"

namespace gristmill {

// The first records of a file.
struct RecordPart {
  std::shared_ptr<const SpanFile> file;
  std::uint64_t records = 0;  // At most file->size().
};

struct RecordLengths {
  // Array 0 has the lengths of all records, in the order of the parts.
  ArrayFile arrays;
  // Bytes of a length: 4, or 8 if a record has 2**31 items or more.
  std::size_t width = 0;
};

// Returns the lengths in items of `item_bytes` bytes, from the first of
// `index_paths` that has those of these parts.  Otherwise, reads the indices of
// the files, and saves the lengths at the first path that is writable.
// REQUIRES: item_bytes > 0.
Result<RecordLengths> record_lengths(
    std::span<const RecordPart> parts, std::uint64_t item_bytes,
    const std::vector<std::string>& index_paths);

}  // namespace gristmill
