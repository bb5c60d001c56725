// A HeadReader reads the heads of consecutive items in a file.  Each head
// contains the offset of the next one.
//
// If the items are small, one read covers many of them.  If they are large, the
// reader reads only the heads.
//
// Thread safety: none; a reader belongs to one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/byte_buffer.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"

namespace gristmill {

// Progress of a pass over a file.  Any thread may read it or cancel the pass.
struct ScanProgress {
  std::atomic<std::uint64_t> done_bytes{0};
  std::atomic<bool> cancelled{false};
};

class HeadReader {
 public:
  // Each read has at least `glance` bytes, except at the end of the file.
  HeadReader(const File& file, std::uint64_t glance, ScanProgress& progress);

  // Returns `size` bytes at offset `at`, valid until the next call.  `items` is
  // the number of items before `at`.
  // REQUIRES: the range lies in the file.
  Result<std::span<const std::byte>> read(std::uint64_t at, std::uint64_t size,
                                          std::uint64_t items);

 private:
  // Bytes to read at once, and the size of an item from which reading only its
  // head is faster than reading all of it.
  struct Steps {
    std::uint64_t window;
    std::uint64_t large_item;
  };
  static constexpr Steps kNearSteps = {std::uint64_t{256} << 10,
                                       std::uint64_t{16} << 10};
  // The latency of a remote read equals the transfer time of several megabytes.
  static constexpr Steps kFarSteps = {std::uint64_t{8} << 20,
                                      std::uint64_t{4} << 20};

  Status move(std::uint64_t at, std::uint64_t size, std::uint64_t items);

  const File& file_;
  const std::uint64_t glance_;
  const Steps steps_;
  ScanProgress& progress_;
  ByteBuffer window_;
  std::uint64_t begin_ = 0;
};

}  // namespace gristmill
