// Builds the index of a data file once for all processes of a machine.
//
// Thread safety: any thread or process may call these functions.  A lock on the
// data file lets one build the index while the others wait, see FileLock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/index_file.hpp"
#include "core/files/packed_chunks.hpp"

namespace gristmill {

// Returns the index at the first of `index_paths` that matches `origin`.  If
// there is none, returns the result of `build` and saves it at the first path
// that is writable.
//
// Waits at most `max_wait` for another thread or process that builds an index
// of the file, and then builds the index, too.  `max_wait` should be about the
// time that building takes: the other index may be one for other paths.
Result<IndexFile> load_or_build_index(
    const File& file, const IndexFile::Origin& origin,
    std::span<const std::string> index_paths,
    std::chrono::milliseconds max_wait,
    const std::function<Result<IndexFile>()>& build);

// The offsets of the records of a file that does not contain an index.
struct RecordPlaces {
  PackedChunks places;
  // The path of the saved index, or empty if it is not saved.
  std::string path;
};

// Like load_or_build_index(), for a file that does not contain an index. `scan`
// finds the offsets in one pass over the file; the last record must end with
// the file.  `kind` is a number for the format of the file and the options of
// the scan, and is saved as Origin::hash.
Result<RecordPlaces> load_or_scan_places(
    const File& file, std::uint64_t kind,
    std::span<const std::string> index_paths,
    const std::function<Result<PackedChunks>()>& scan);

// Returns the memory used to build indices to the system.  Without this call,
// each reading thread would keep tens of MB.  Call it after the last of several
// indices, because building the next one would allocate the pages again.
void return_memory_of_indices();

}  // namespace gristmill
