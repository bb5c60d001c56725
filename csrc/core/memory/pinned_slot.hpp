// A PinnedSlot keeps the pages of a slot where they are, from the first byte to
// the last, for a device that reads them by their physical addresses.
//
// The slot goes on being used again and again; only its pages are not given
// back, nor unmapped when the arena and all views are gone.  What registers the
// range with a device takes that back before it ends the PinnedSlot.
//
// Thread safety: any thread may end it.
#pragma once

#include <cstdint>
#include <memory>

#include "core/memory/arena.hpp"

namespace gristmill {

class PinnedSlot {
 public:
  // Pins a slot, or returns nullptr where it is pinned already.
  // REQUIRES: the caller keeps a view of the slot.
  static std::unique_ptr<PinnedSlot> pin(ArenaSlot* slot) {
    if (slot->pinned.exchange(true, std::memory_order_acq_rel)) return nullptr;
    slot->book->holders.fetch_add(1, std::memory_order_relaxed);
    // Registering gives every page of the range its memory.  Nobody else writes
    // this while the slot has views.
    slot->populated = slot->capacity;
    return std::unique_ptr<PinnedSlot>(new PinnedSlot(slot));
  }
  ~PinnedSlot() {
    slot_->pinned.store(false, std::memory_order_release);
    book_->release();
  }
  PinnedSlot(const PinnedSlot&) = delete;
  PinnedSlot& operator=(const PinnedSlot&) = delete;

  // The whole range, in pages.
  [[nodiscard]] std::uintptr_t address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(book_->base) + slot_->offset;
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return slot_->capacity; }

 private:
  explicit PinnedSlot(ArenaSlot* slot) noexcept
      : slot_(slot), book_(slot->book) {}

  ArenaSlot* const slot_;
  ArenaBook* const book_;
};

}  // namespace gristmill
