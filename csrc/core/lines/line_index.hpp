// Finds the lines of a text file.
//
// Thread safety: a pure function.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/head_reader.hpp"
#include "core/files/span_index.hpp"

namespace gristmill {

// Returns the lines that are not blank, without the bytes that end them ("\n",
// "\r\n", or the end of the file).  A line with only spaces, tabs and "\r" is
// blank.
//
// Loads the list from the first path of `index_paths` that has the index of
// this file. Otherwise, scans the file, and saves the list to the first path
// that can be written.  Errors do not name the file.
Result<std::unique_ptr<const SpanIndex>> line_index(
    const File& file, std::span<const std::string> index_paths,
    ScanProgress& progress);

}  // namespace gristmill
