// A PinnedSlot keeps all pages of a slot in place for a device that reads them
// by their physical addresses.
//
// The slot is still reused, but its pages are not returned to the system, and
// not unmapped when the arena and all views are gone.  The code that registers
// the range with a device must unregister it before it destroys the PinnedSlot.
//
// Thread safety: any thread may destroy it.
#pragma once

#include <cstdint>
#include <memory>

#include "core/memory/arena.hpp"

namespace gristmill {

class PinnedSlot {
 public:
  // Pins a slot, or returns nullptr if it is already pinned.
  // REQUIRES: the caller keeps a view of the slot.
  static std::unique_ptr<PinnedSlot> pin(ArenaSlot* slot) {
    if (slot->pinned.exchange(true, std::memory_order_acq_rel)) return nullptr;
    slot->mapping->references.fetch_add(1, std::memory_order_relaxed);
    // Registering allocates every page of the range.  No other thread writes
    // `populated` while the slot has views.  The next Arena::take() charges
    // these pages.
    slot->populated = slot->capacity;
    return std::unique_ptr<PinnedSlot>(new PinnedSlot(slot));
  }
  ~PinnedSlot() {
    slot_->pinned.store(false, std::memory_order_release);
    mapping_->release();
  }
  PinnedSlot(const PinnedSlot&) = delete;
  PinnedSlot& operator=(const PinnedSlot&) = delete;

  // Returns the address of the slot.  The range consists of whole pages.
  [[nodiscard]] std::uintptr_t address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(mapping_->base) + slot_->offset;
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return slot_->capacity; }

 private:
  explicit PinnedSlot(ArenaSlot* slot) noexcept
      : slot_(slot), mapping_(slot->mapping) {}

  ArenaSlot* const slot_;
  ArenaMapping* const mapping_;
};

}  // namespace gristmill
