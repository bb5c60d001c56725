// A HeadReader reads the heads of what lies in a file one behind the other,
// where each head says where the next one is.
//
// Of small items it reads many at once, of large ones only the heads.
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

// How far a pass over a file is; any thread may look, or end it early.
struct ScanProgress {
  std::atomic<std::uint64_t> done_bytes{0};
  std::atomic<bool> cancelled{false};
};

class HeadReader {
 public:
  // Reads at least `glance` bytes at a time, where the file has them.
  HeadReader(const File& file, std::uint64_t glance, ScanProgress& progress);

  // Returns `size` bytes at `at`, valid until the next call.  `items` is how
  // many end there.  REQUIRES: the file has them.
  Result<std::span<const std::byte>> read(std::uint64_t at, std::uint64_t size,
                                          std::uint64_t items);

 private:
  // Bytes to read at once.  Large is what takes longer to read than to ask for
  // the next head.
  struct Steps {
    std::uint64_t window;
    std::uint64_t large_item;
  };
  static constexpr Steps kNearSteps = {std::uint64_t{256} << 10,
                                       std::uint64_t{16} << 10};
  // Each read of a file that is far away waits for as long as megabytes take.
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
