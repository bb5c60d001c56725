// PackedChunks is a compact list of chunks.
//
// Groups of 64 chunks share a full offset.  Within a group, every number takes
// as many bytes as the largest one.  A chunk of one kilobyte takes about 5
// bytes of the list, and a chunk of 16 MiB takes 8.
//
// A list is either built chunk by chunk, or is a view of a file that contains
// such a list.  A view needs no parsing, and processes share its pages.
//
// Thread safety: const methods may overlap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/own_memory.hpp"

namespace gristmill {

class PackedChunks {
 public:
  struct Chunk {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;  // The beginning of the next chunk.
    std::uint64_t decoded_size = 0;
  };

  // The serialized list, in two parts.
  struct Image {
    std::span<const std::byte> groups;  // Must be aligned to 8 bytes.
    std::span<const std::byte> packed;
  };

  // Returns a list of `size` chunks that end at `end`.  It is a view of an
  // image that `owner` keeps alive.  Returns nothing if the image is not such a
  // list.  A forged list may be accepted, but none of its chunks extends beyond
  // `end`.
  static std::optional<PackedChunks> from_image(
      const Image& image, std::uint64_t size, std::uint64_t end,
      std::shared_ptr<const void> owner);

  // Adds a chunk.
  // REQUIRES: `begin` ascends from call to call; finish() was not called.
  void add(std::uint64_t begin, std::uint64_t decoded_size) {
    if (!parts_) parts_ = std::make_shared<Parts>();
    parts_->unpacked[parts_->num_unpacked++] = {begin, decoded_size};
    ++size_;
    if (parts_->num_unpacked == kGroupChunks) parts_->pack();
  }

  // Completes the list.  `end` is the end of the last chunk.
  void finish(std::uint64_t end);

  // Returns chunk i.  REQUIRES: i < size(); finish() was called.
  [[nodiscard]] Chunk at(std::uint64_t i) const noexcept;

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  // Returns the end of the last chunk.  REQUIRES: finish() was called.
  [[nodiscard]] std::uint64_t end() const noexcept {
    return groups_.back().begin;
  }

  // Returns the serialized list, valid during the lifetime of the list and its
  // copies.
  // REQUIRES: finish() was called.
  [[nodiscard]] Image image() const noexcept {
    return {std::as_bytes(groups_), packed_};
  }

  // Returns the size of the list in bytes, in memory or in a mapped file.
  [[nodiscard]] std::size_t held_bytes() const noexcept {
    return groups_.size_bytes() + packed_.size();
  }

 private:
  static constexpr std::size_t kGroupChunks = 64;

  // A group in the 16 bytes that index_file.hpp describes.
  struct Group {
    std::uint64_t begin = 0;
    std::uint64_t packed_offset : 48 = 0;
    std::uint64_t offset_bytes : 8 = 0;
    std::uint64_t size_bytes : 8 = 0;

    [[nodiscard]] std::size_t chunk_bytes() const {
      return offset_bytes + size_bytes;
    }
  };
  struct Entry {
    std::uint64_t begin = 0;
    std::uint64_t decoded_size = 0;
  };

  // The state of a list under construction.
  struct Parts {
    std::vector<Group> groups;
    // The capacity may exceed packed_bytes.  The excess is uninitialized.
    OwnMemory packed;
    std::size_t packed_bytes = 0;
    std::array<Entry, kGroupChunks> unpacked{};
    std::size_t num_unpacked = 0;

    void pack();
    std::byte* reserve(std::size_t bytes);
    void resize(std::size_t bytes);
  };

  [[nodiscard]] bool is_valid(std::uint64_t end) const noexcept;

  std::shared_ptr<Parts> parts_;  // Null after finish().
  std::shared_ptr<const void> owner_;
  std::span<const Group> groups_;  // One for each group, and one for the end.
  std::span<const std::byte> packed_;
  std::uint64_t size_ = 0;
};

}  // namespace gristmill
