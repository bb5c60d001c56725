#include "core/memory/slot.hpp"

#include <cstring>

namespace gristmill {

bool read_outputs(std::span<const std::byte> slot, std::uint32_t outputs,
                  std::uint32_t cursor_capacity,
                  std::vector<SlotOutput>& into) {
  SlotHeader header;
  if (slot.size() < sizeof(header)) return false;
  std::memcpy(&header, slot.data(), sizeof(header));
  if (header.magic != kSlotMagic || header.outputs != outputs ||
      header.vector_room > cursor_capacity ||
      header.table_offset > slot.size()) {
    return false;
  }
  const std::size_t entry_bytes =
      sizeof(SlotEntry) + header.vector_room * sizeof(std::int64_t);
  if ((slot.size() - header.table_offset) / entry_bytes < outputs) return false;
  into.resize(outputs);
  const std::byte* from = slot.data() + header.table_offset;
  for (SlotOutput& output : into) {
    SlotEntry entry;
    std::memcpy(&entry, from, sizeof(entry));
    if (entry.vector_len < 1 || entry.vector_len > header.vector_room) {
      return false;
    }
    output.flags = entry.flags;
    output.vector.resize(entry.vector_len);
    std::memcpy(output.vector.data(), from + sizeof(entry),
                entry.vector_len * sizeof(std::int64_t));
    from += entry_bytes;
  }
  return true;
}

}  // namespace gristmill
