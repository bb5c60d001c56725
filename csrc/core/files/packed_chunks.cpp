#include "core/files/packed_chunks.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

namespace gristmill {
namespace {

std::size_t bytes_for(std::uint64_t value) {
  return (static_cast<std::size_t>(std::bit_width(value)) + 7) / 8;
}

// Writes 8 bytes.  The next call overwrites the bytes after the number.
void store(std::byte* to, std::uint64_t value) {
  std::memcpy(to, &value, sizeof value);
}

// Reads 8 bytes and masks the excess ones.  The list ends with 8 padding bytes,
// so this does not read beyond it.
std::uint64_t load(const std::byte* from, std::size_t bytes) {
  std::uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return bytes == 0 ? 0 : value & (~std::uint64_t{0} >> (64 - 8 * bytes));
}

}  // namespace

void PackedChunks::finish(std::uint64_t end) {
  if (!parts_) parts_ = std::make_shared<Parts>();
  Parts& parts = *parts_;
  if (parts.num_unpacked > 0) parts.pack();
  Group last;
  last.begin = end;
  last.packed_offset = parts.packed_bytes & 0xffffffffffff;
  parts.groups.push_back(last);
  const std::size_t bytes = parts.packed_bytes + sizeof(std::uint64_t);
  parts.resize(bytes);
  std::memset(parts.packed.data() + parts.packed_bytes, 0,
              sizeof(std::uint64_t));
  parts.groups.shrink_to_fit();
  groups_ = parts.groups;
  packed_ = {parts.packed.data(), bytes};
  owner_ = std::move(parts_);
}

void PackedChunks::Parts::pack() {
  const std::uint64_t begin = unpacked[0].begin;
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < num_unpacked; ++i) {
    largest = std::max(largest, unpacked[i].decoded_size);
  }
  const std::size_t offset_bytes =
      bytes_for(unpacked[num_unpacked - 1].begin - begin);
  const std::size_t size_bytes = bytes_for(largest);
  Group group;
  group.begin = begin;
  group.packed_offset = packed_bytes & 0xffffffffffff;
  group.offset_bytes = offset_bytes & 0xff;
  group.size_bytes = size_bytes & 0xff;
  groups.push_back(group);
  const std::size_t chunk_bytes = group.chunk_bytes();
  std::byte* to = reserve(kGroupChunks * chunk_bytes) + packed_bytes;
  for (std::size_t i = 0; i < num_unpacked; ++i, to += chunk_bytes) {
    store(to, unpacked[i].begin - begin);
    store(to + offset_bytes, unpacked[i].decoded_size);
  }
  packed_bytes += num_unpacked * chunk_bytes;
  num_unpacked = 0;
}

// Makes room to pack `bytes` more bytes and the 8 padding bytes.
std::byte* PackedChunks::Parts::reserve(std::size_t bytes) {
  const std::size_t required = packed_bytes + bytes + sizeof(std::uint64_t);
  if (required > packed.size()) resize(required + packed.size());
  return packed.data();
}

void PackedChunks::Parts::resize(std::size_t bytes) {
  if (!packed.resize(bytes)) throw std::bad_alloc();
}

PackedChunks::Chunk PackedChunks::at(std::uint64_t i) const noexcept {
  assert(i < size_ && !parts_);
  const Group& group = groups_[i / kGroupChunks];
  const std::size_t chunk_bytes = group.chunk_bytes();
  const std::byte* const from =
      packed_.data() + group.packed_offset + i % kGroupChunks * chunk_bytes;
  const bool last = i % kGroupChunks == kGroupChunks - 1 || i + 1 == size_;
  const std::uint64_t begin =
      std::min(group.begin + load(from, group.offset_bytes), end());
  const std::uint64_t next =
      last ? (&group)[1].begin
           : group.begin + load(from + chunk_bytes, group.offset_bytes);
  return {begin, std::clamp(next, begin, end()),
          load(from + group.offset_bytes, group.size_bytes)};
}

std::optional<PackedChunks> PackedChunks::from_image(
    const Image& image, std::uint64_t size, std::uint64_t end,
    std::shared_ptr<const void> owner) {
  const std::uint64_t groups = (size + kGroupChunks - 1) / kGroupChunks + 1;
  if (image.groups.size() / sizeof(Group) != groups ||
      image.groups.size() % sizeof(Group) != 0) {
    return std::nullopt;
  }
  PackedChunks chunks;
  chunks.groups_ = {reinterpret_cast<const Group*>(image.groups.data()),
                    static_cast<std::size_t>(groups)};
  chunks.packed_ = image.packed;
  chunks.size_ = size;
  chunks.owner_ = std::move(owner);
  if (!chunks.is_valid(end)) return std::nullopt;
  return chunks;
}

// Returns true if at() stays within the list for every index, even if the list
// was forged.
bool PackedChunks::is_valid(std::uint64_t end) const noexcept {
  std::uint64_t packed_offset = 0;
  std::uint64_t remaining = size_;
  for (const Group& group : groups_) {
    if (group.packed_offset != packed_offset || group.begin > end ||
        group.offset_bytes > sizeof(std::uint64_t) ||
        group.size_bytes >= sizeof(std::uint64_t)) {
      return false;
    }
    const std::uint64_t count =
        std::min<std::uint64_t>(remaining, kGroupChunks);
    packed_offset += count * group.chunk_bytes();
    remaining -= count;
  }
  return groups_.back().begin == end &&
         packed_.size() == packed_offset + sizeof(std::uint64_t);
}

}  // namespace gristmill
