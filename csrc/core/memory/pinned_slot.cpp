#include "core/memory/pinned_slot.hpp"

namespace gristmill {

std::unique_ptr<PinnedSlot> PinnedSlot::pin(ArenaSlot* slot) {
  if (slot->pinned.exchange(true, std::memory_order_acq_rel)) return nullptr;
  slot->book->holders.fetch_add(1, std::memory_order_relaxed);
  // Registering gives every page of the range its memory.  Nobody else writes
  // this while the slot has views.
  slot->populated = slot->capacity;
  return std::unique_ptr<PinnedSlot>(new PinnedSlot(slot));
}

PinnedSlot::~PinnedSlot() {
  ArenaBook* const book = slot_->book;
  slot_->pinned.store(false, std::memory_order_release);
  if (book->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    book->end(book);
  }
}

std::uintptr_t PinnedSlot::address() const noexcept {
  return reinterpret_cast<std::uintptr_t>(slot_->book->base) + slot_->offset;
}

std::uint64_t PinnedSlot::bytes() const noexcept { return slot_->capacity; }

}  // namespace gristmill
