// The file that a RangeCache lies in, and how it comes to be there.
//
// It is made whole under another name first, is known by its size, and is
// locked by all that have it open: who has another to themselves may remove it.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/status.hpp"

namespace gristmill {

struct CacheFile {
  std::string path;
  int fd = -1;
  bool writes = false;  // Whether it may be written to.
};

// Opens the file of `sets` sets and `bytes` bytes of a folder, or makes it
// there. Those of other sizes that nobody has open are removed.
Result<CacheFile> open_cache_file(const std::string& folder, std::uint64_t sets,
                                  std::uint64_t bytes);

// Reads or writes all of `size` bytes; false, with errno, if that fails.
bool pread_all(int fd, std::uint64_t at, void* to, std::size_t size);
bool pwrite_all(int fd, std::uint64_t at, const void* from, std::size_t size);

}  // namespace gristmill
