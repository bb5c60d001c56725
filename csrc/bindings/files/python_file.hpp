// A PythonFile is a File that is read by a Python object with these members:
//
//   path: str, size: int          see File
//   gap_bytes, run_bytes, tail_bytes, parallel: int   see File::Hints
//   version: int                  optional, see File::version()
//   read_range(offset, size)      returns `size` bytes, or raises
//   change()                      see File::describe_change()
//
// An object that reads many ranges at once also has:
//
//   fetches: bool                 true
//   fetch([(object, offset, size), ...])    starts to read ranges of objects of
//                                 its class; returns an object with
//     take()                      waits for some ranges; returns a list of
//                                 (number of the range, bytes or an exception)
//     close()                     cancels the outstanding ranges
//
// An object whose bytes are cached on this machine also has:
//
//   cache: RangeCache or None     the cache
//   origin: (int, int, int)       its key there, see RangeCache::Origin
//   cache_failed(text)            called once, with the error that disabled
//                                 the cache
//
// Exceptions of the object reach the caller unchanged.  Several threads call
// the object at once, with the GIL.  After the interpreter starts to shut down,
// they no longer call it, and threads that are in such a call hang.
//
// Thread safety: const methods may overlap, with the GIL or without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bindings/bind.hpp"
#include "core/base/pool.hpp"
#include "core/files/file.hpp"
#include "core/files/range_cache.hpp"

namespace gristmill::bind {

// Copying fewer bytes is faster than releasing and reacquiring the GIL.
inline constexpr std::size_t kCopyUnlockedBytes = std::size_t{64} << 10;

class PythonFile final : public File {
 public:
  // REQUIRES: the GIL is held.
  static Ptr open(const py::object& object);

  [[nodiscard]] std::uint64_t version() const noexcept override {
    return version_;
  }
  Status read(std::uint64_t offset, std::span<std::byte> to) const override;
  [[nodiscard]] const Fetcher* fetcher() const noexcept override;

  // Also returns an empty string if the object cannot detect changes.
  [[nodiscard]] std::string describe_change() const override;

 private:
  PythonFile(const py::object& object, const Hints& hints);

  friend class PythonFetch;

  // The cache of the file on this machine, if any, and the key of the file
  // there.
  struct CachedFile {
    std::shared_ptr<RangeCache> cache;  // Null if the file is not cached.
    RangeCache::Origin origin;
  };
  static CachedFile cached_file_of(const py::object& object);

  const std::shared_ptr<const void> object_;
  const std::uint64_t version_;
  const bool fetches_;
  const CachedFile cached_file_;
};

// Opens a local path with the access method `access`, or a file that a Python
// object reads.
// REQUIRES: the GIL is held.
File::Ptr open_file(const py::object& file, const std::string& access);

// Returns the threads that wait for PythonFiles, for all readers.  They are
// never joined, because some may hang when the interpreter shuts down.
// REQUIRES: the GIL is held.
Pool& remote_pool();

}  // namespace gristmill::bind
