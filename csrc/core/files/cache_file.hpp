// Opens and creates the file of a RangeCache.
//
// The file is created completely under a temporary name first.  Its name
// contains its size.  Each process that has it open holds a shared lock.  A
// process may remove a file of another size if it gets an exclusive lock.
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
  bool is_writable = false;
};

// Opens the file in `folder` that has `sets` sets and `bytes` bytes.  Creates
// it if it does not exist.  Removes files of other sizes that no process has
// open.
Result<CacheFile> open_cache_file(const std::string& folder, std::uint64_t sets,
                                  std::uint64_t bytes);

// Read or write all of `size` bytes.  Return false and set errno on failure.
bool pread_all(int fd, std::uint64_t offset, void* to, std::size_t size);
bool pwrite_all(int fd, std::uint64_t offset, const void* from,
                std::size_t size);

}  // namespace gristmill
