#include "core/slot.hpp"

#include <cstring>

namespace gristmill {

bool read_outputs(std::span<const std::byte> slot, std::uint32_t outputs,
                  std::size_t vector_len, std::vector<SlotOutput>& into) {
  SlotHeader header;
  if (slot.size() < sizeof(header)) return false;
  std::memcpy(&header, slot.data(), sizeof(header));
  if (header.magic != kSlotMagic || header.outputs != outputs ||
      header.vector_len != vector_len || header.table_offset > slot.size()) {
    return false;
  }
  const std::size_t vector_bytes = vector_len * sizeof(std::int64_t);
  const std::size_t entry_bytes = sizeof(SlotEntry) + vector_bytes;
  if ((slot.size() - header.table_offset) / entry_bytes < outputs) return false;
  into.resize(outputs);
  const std::byte* from = slot.data() + header.table_offset;
  for (SlotOutput& output : into) {
    SlotEntry entry;
    std::memcpy(&entry, from, sizeof(entry));
    output.flags = entry.flags;
    output.vector.resize(vector_len);
    std::memcpy(output.vector.data(), from + sizeof(entry), vector_bytes);
    from += entry_bytes;
  }
  return true;
}

}  // namespace gristmill
