// PackedChunks is a list of chunks in as few bytes as its numbers need.
//
// Groups of 64 chunks share a full offset; within a group every number takes
// as many bytes as the largest one.  That makes about 5 bytes a chunk for
// chunks of a kilobyte, and 8 for chunks of 16 MiB.
//
// Thread safety: const methods may overlap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gristmill {

class PackedChunks {
 public:
  struct Chunk {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;  // Where the next one begins.
    std::uint64_t decoded_size = 0;
  };

  // REQUIRES: `begin` ascends from call to call; finish() was not called.
  void add(std::uint64_t begin, std::uint64_t decoded_size);

  // Ends the last chunk.
  void finish(std::uint64_t end);

  // REQUIRES: i < size(); finish() was called.
  [[nodiscard]] Chunk at(std::uint64_t i) const noexcept;

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t held_bytes() const noexcept;

 private:
  static constexpr std::size_t kGroup = 64;

  struct Group {
    std::uint64_t begin = 0;
    std::uint64_t packed_at : 48 = 0;
    std::uint64_t offset_bytes : 8 = 0;
    std::uint64_t size_bytes : 8 = 0;
  };
  struct Entry {
    std::uint64_t begin = 0;
    std::uint64_t decoded_size = 0;
  };

  void pack();

  std::vector<Group> groups_;  // After finish(), one more with the end.
  std::vector<std::byte> packed_;
  std::uint64_t size_ = 0;
  std::array<Entry, kGroup> open_{};  // Not yet packed.
  std::size_t num_open_ = 0;
};

}  // namespace gristmill
