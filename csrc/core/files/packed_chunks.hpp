// PackedChunks is a list of chunks in as few bytes as its numbers need.
//
// Groups of 64 chunks share a full offset; within a group every number takes
// as many bytes as the largest one.  That makes about 5 bytes a chunk for
// chunks of a kilobyte, and 8 for chunks of 16 MiB.
//
// A list is made chunk by chunk, or lies in the bytes of a file that has such a
// list: then there is nothing to parse, and processes share its pages.
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
    std::uint64_t end = 0;  // Where the next one begins.
    std::uint64_t decoded_size = 0;
  };

  // The bytes of a list, in two parts.
  struct Image {
    std::span<const std::byte> groups;  // On an address divisible by 8.
    std::span<const std::byte> packed;
  };

  // A list of `size` chunks that end at `end`, over the bytes of an image that
  // `owner` keeps.  Empty if they are no such list.  What somebody made up may
  // be accepted; but no chunk reaches beyond `end`.
  static std::optional<PackedChunks> over(const Image& image,
                                          std::uint64_t size, std::uint64_t end,
                                          std::shared_ptr<const void> owner);

  // REQUIRES: `begin` ascends from call to call; finish() was not called.
  void add(std::uint64_t begin, std::uint64_t decoded_size) {
    if (!parts_) parts_ = std::make_shared<Parts>();
    parts_->open[parts_->num_open++] = {begin, decoded_size};
    ++size_;
    if (parts_->num_open == kGroup) parts_->pack();
  }

  // Ends the last chunk.
  void finish(std::uint64_t end);

  // REQUIRES: i < size(); finish() was called.
  [[nodiscard]] Chunk at(std::uint64_t i) const noexcept;

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  // Where the last chunk ends.  REQUIRES: finish() was called.
  [[nodiscard]] std::uint64_t end() const noexcept {
    return groups_.back().begin;
  }

  // Valid as long as the list or a copy is.  REQUIRES: finish() was called.
  [[nodiscard]] Image image() const noexcept {
    return {std::as_bytes(groups_), packed_};
  }

  // Bytes of the list, wherever they are.
  [[nodiscard]] std::size_t held_bytes() const noexcept {
    return groups_.size_bytes() + packed_.size();
  }

 private:
  static constexpr std::size_t kGroup = 64;

  struct Group {
    std::uint64_t begin = 0;
    std::uint64_t packed_at : 48 = 0;
    std::uint64_t offset_bytes : 8 = 0;
    std::uint64_t size_bytes : 8 = 0;

    [[nodiscard]] std::size_t each() const { return offset_bytes + size_bytes; }
  };
  struct Entry {
    std::uint64_t begin = 0;
    std::uint64_t decoded_size = 0;
  };

  // What a list in the making has.
  struct Parts {
    std::vector<Group> groups;
    // With room for more, which nobody has written to.
    OwnMemory packed;
    std::size_t packed_bytes = 0;
    std::array<Entry, kGroup> open{};  // Not yet packed.
    std::size_t num_open = 0;

    void pack();
    std::byte* room_for(std::size_t bytes);
    void resize(std::size_t bytes);
  };

  [[nodiscard]] bool is_sound(std::uint64_t end) const noexcept;

  std::shared_ptr<Parts> parts_;  // Until finish().
  std::shared_ptr<const void> owner_;
  std::span<const Group> groups_;  // One more than there are, with the end.
  std::span<const std::byte> packed_;
  std::uint64_t size_ = 0;
};

}  // namespace gristmill
