// Finds the lines of a text file.
//
// Thread safety: any thread may call this, also for the same file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/head_reader.hpp"
#include "core/files/packed_chunks.hpp"
#include "core/files/span_index.hpp"

namespace gristmill {

// Returns the lines of a text file.
using ScanLines = std::function<Result<PackedChunks>()>;

// Returns the index of the lines that are not blank, without the bytes that end
// them ("\n", "\r\n", or the end of the file).  A line with only spaces, tabs
// and "\r" is blank.
//
// Loads the index from the first of `index_paths` that has the index of this
// file and `kind`, which is stored in place of the hash that other formats
// have.  Otherwise, calls `scan`, and saves the index at the first path that
// can be written.  Errors do not name the file.
Result<std::unique_ptr<const SpanIndex>> line_index(
    const File& file, std::uint64_t kind,
    std::span<const std::string> index_paths, const ScanLines& scan);

// Finds the lines in one pass over the file.
Result<PackedChunks> scan_lines(const File& file, ScanProgress& progress);

}  // namespace gristmill
