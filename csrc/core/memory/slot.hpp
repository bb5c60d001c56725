// The part of a slot that the core reads: its header and, for each output, the
// error flag and the position of the stream after it.
//
// gristmill._hot writes and reads the rest of the slot, which holds the
// elements.  All offsets count from the start of the slot.  Numbers are little
// endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace gristmill {

inline constexpr std::uint32_t kSlotMagic = 0x31534d47;  // "GMS1"
inline constexpr std::uint32_t kOutputError = 1;

struct SlotHeader {
  std::uint32_t magic;
  std::uint32_t outputs;
  std::uint32_t position_room;  // integers after each entry of the table
  // kOutputError if the last output is an error
  std::uint32_t status;
  std::uint64_t table_offset;  // offset of the `outputs` entries
};

// An entry of the table.  The header's position_room integers of 8 bytes
// follow; the first position_len of them are the position after this output.
// The core uses only `flags` and `position_len`; _hot/slot_format.pxd describes
// the others.
struct SlotEntry {
  std::uint64_t layout_offset;
  std::uint32_t layout_len;
  std::uint32_t flags;  // kOutputError
  std::uint64_t rest_offset;
  std::uint64_t rest_len;
  std::uint64_t keys_offset;
  std::uint32_t keys;
  std::uint32_t position_len;
};

static_assert(sizeof(SlotHeader) == 24 && sizeof(SlotEntry) == 48);

struct SlotOutput {
  std::uint32_t flags = 0;
  std::vector<std::int64_t> position;
};

// Copies the data that the core needs from a slot.  Returns true iff the slot
// holds `outputs` entries within its bytes, each with a position of 1 to
// `position_capacity` integers.
[[nodiscard]] inline bool read_outputs(std::span<const std::byte> slot,
                                       std::uint32_t outputs,
                                       std::uint32_t position_capacity,
                                       std::vector<SlotOutput>& into) {
  SlotHeader header;
  if (slot.size() < sizeof(header)) return false;
  std::memcpy(&header, slot.data(), sizeof(header));
  if (header.magic != kSlotMagic || header.outputs != outputs ||
      header.position_room > position_capacity ||
      header.table_offset > slot.size()) {
    return false;
  }
  const std::size_t entry_bytes =
      sizeof(SlotEntry) + header.position_room * sizeof(std::int64_t);
  if ((slot.size() - header.table_offset) / entry_bytes < outputs) return false;
  into.resize(outputs);
  const std::byte* from = slot.data() + header.table_offset;
  for (SlotOutput& output : into) {
    SlotEntry entry;
    std::memcpy(&entry, from, sizeof(entry));
    if (entry.position_len < 1 || entry.position_len > header.position_room) {
      return false;
    }
    output.flags = entry.flags;
    output.position.resize(entry.position_len);
    std::memcpy(output.position.data(), from + sizeof(entry),
                entry.position_len * sizeof(std::int64_t));
    from += entry_bytes;
  }
  return true;
}

}  // namespace gristmill
