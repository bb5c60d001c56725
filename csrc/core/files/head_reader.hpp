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
  // Each read has at least `min_read_bytes` bytes, except at the end of the
  // file.
  HeadReader(const File& file, std::uint64_t min_read_bytes,
             ScanProgress& progress);

  // Returns `size` bytes at offset `offset`, valid until the next call.
  // `items_before` is the number of items before `offset`. REQUIRES: the range
  // lies in the file.
  Result<std::span<const std::byte>> read(std::uint64_t offset,
                                          std::uint64_t size,
                                          std::uint64_t items_before);

 private:
  // Bytes to read at once, and the size of an item from which reading only its
  // head is faster than reading all of it.
  struct ReadSizes {
    std::uint64_t window_bytes;
    std::uint64_t large_item_bytes;
  };
  static constexpr ReadSizes kLocalReadSizes = {std::uint64_t{256} << 10,
                                                std::uint64_t{16} << 10};
  // The latency of a remote read equals the transfer time of several megabytes.
  static constexpr ReadSizes kRemoteReadSizes = {std::uint64_t{8} << 20,
                                                 std::uint64_t{4} << 20};

  Status read_window(std::uint64_t offset, std::uint64_t size,
                     std::uint64_t items_before);

  const File& file_;
  const std::uint64_t min_read_bytes_;
  const ReadSizes read_sizes_;  // Remote if hints().parallel > 1.
  ScanProgress& progress_;
  ByteBuffer window_;
  std::uint64_t window_begin_ = 0;
};

}  // namespace gristmill
