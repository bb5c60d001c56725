// Opens a text file, plain or compressed, whose records are its lines.
//
// Thread safety: any thread may call this, also for the same file.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/array_record/chunk_cache.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/head_reader.hpp"
#include "core/files/span_file.hpp"

namespace gristmill {

// Opens a file by the index of its lines, see line_index().  A file of gzip
// members or zstd frames also has an index of its frames, which is saved next
// to that of its lines.  `cache` keeps decompressed frames.  Errors name the
// file.
Result<std::shared_ptr<const SpanFile>> open_line_file(
    File::Ptr file, std::span<const std::string> index_paths,
    std::shared_ptr<ChunkCache> cache, ScanProgress& progress);

}  // namespace gristmill
