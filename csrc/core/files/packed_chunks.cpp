#include "core/files/packed_chunks.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace gristmill {
namespace {

std::size_t bytes_for(std::uint64_t value) {
  return (static_cast<std::size_t>(std::bit_width(value)) + 7) / 8;
}

void store(std::byte* to, std::uint64_t value, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, &value, bytes);
}

// Reads 8 bytes and keeps some: the list ends in 8 bytes that belong to none.
std::uint64_t load(const std::byte* from, std::size_t bytes) {
  std::uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return bytes == 0 ? 0 : value & (~std::uint64_t{0} >> (64 - 8 * bytes));
}

}  // namespace

void PackedChunks::add(std::uint64_t begin, std::uint64_t decoded_size) {
  open_[num_open_++] = {begin, decoded_size};
  ++size_;
  if (num_open_ == kGroup) pack();
}

void PackedChunks::finish(std::uint64_t end) {
  if (num_open_ > 0) pack();
  Group last;
  last.begin = end;
  groups_.push_back(last);
  packed_.resize(packed_.size() + sizeof(std::uint64_t));
  groups_.shrink_to_fit();
  packed_.shrink_to_fit();
}

void PackedChunks::pack() {
  const std::uint64_t begin = open_[0].begin;
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < num_open_; ++i) {
    largest = std::max(largest, open_[i].decoded_size);
  }
  const std::size_t offset_bytes =
      bytes_for(open_[num_open_ - 1].begin - begin);
  const std::size_t size_bytes = bytes_for(largest);
  const std::size_t each = offset_bytes + size_bytes;
  Group group;
  group.begin = begin;
  group.packed_at = packed_.size() & 0xffffffffffff;
  group.offset_bytes = offset_bytes & 0xff;
  group.size_bytes = size_bytes & 0xff;
  groups_.push_back(group);
  packed_.resize(packed_.size() + num_open_ * each);
  std::byte* to = packed_.data() + group.packed_at;
  for (std::size_t i = 0; i < num_open_; ++i, to += each) {
    store(to, open_[i].begin - begin, offset_bytes);
    store(to + offset_bytes, open_[i].decoded_size, size_bytes);
  }
  num_open_ = 0;
}

PackedChunks::Chunk PackedChunks::at(std::uint64_t i) const noexcept {
  assert(i < size_ && num_open_ == 0);
  const Group& group = groups_[i / kGroup];
  const std::size_t each = group.offset_bytes + group.size_bytes;
  const std::byte* const from =
      packed_.data() + group.packed_at + i % kGroup * each;
  const bool last = i % kGroup == kGroup - 1 || i + 1 == size_;
  return {group.begin + load(from, group.offset_bytes),
          last ? (&group)[1].begin
               : group.begin + load(from + each, group.offset_bytes),
          load(from + group.offset_bytes, group.size_bytes)};
}

std::size_t PackedChunks::held_bytes() const noexcept {
  return groups_.capacity() * sizeof(Group) + packed_.capacity();
}

}  // namespace gristmill
