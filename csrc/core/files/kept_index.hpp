// Makes the index of a data file once for all processes of a machine.
//
// Thread safety: a pure function.  Processes may call it for one file at the
// same time.
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

// Returns the index at the first of the paths `kept` that has the one of
// `origin`, else what `make` returns, saved to the first that can be written.
//
// Waits at most `longest` for another that makes one: about as long as that
// takes, because names of one file have one lock.
Result<IndexFile> kept_index(const File& file, const IndexFile::Origin& origin,
                             std::span<const std::string> kept,
                             std::chrono::milliseconds longest,
                             const std::function<Result<IndexFile>()>& make);

// Where the records of a file lie that has no list of its own.
struct ScannedPlaces {
  PackedChunks places;
  std::string path;  // Of the index that has them; empty if they are not kept.
};

// As kept_index(), of such a file; `scan` finds the places in one pass over it,
// the last of which ends with the file.  `kind` is kept in the place of a hash.
Result<ScannedPlaces> kept_places(
    const File& file, std::uint64_t kind, std::span<const std::string> kept,
    const std::function<Result<PackedChunks>()>& scan);

// Gives back the memory in which indices were made, if any were: each thread
// that reads would keep tens of MB of it.  For after the last one of several,
// since the next one would take new pages.
void return_memory_of_indices();

}  // namespace gristmill
