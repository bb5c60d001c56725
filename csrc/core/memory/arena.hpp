// An Arena is one sparse, sealed memfd, mapped as a whole.  Ranges of it are
// handed out as slots.
//
// To grow, the arena hands out another range: it remaps nothing and passes no
// file descriptors after the start.  Idle slots are reused last-in first-out.
// A slot is reused only if its last view ended in this process and no fork
// happened while it had views.  A pinned slot is reused, but its pages are
// never returned to the system.
//
// Thread safety: external synchronization, except for retain_view and
// release_view, which any thread may call at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "core/base/status.hpp"

namespace gristmill {

struct ArenaMapping;

// A range of the arena.  This struct is private to the process.
//
// Any thread may access `views` and `pinned`.  `mapping`, `offset` and
// `capacity` are constant while the slot has views or is pinned, so any thread
// may read them then.  Other accesses need the synchronization of the Arena,
// except those that are noted below.
struct ArenaSlot {
  std::atomic<std::uint32_t> views{0};
  // The next one in ArenaMapping::returned_slots.  Written by the thread that
  // ends the last view, then read by reclaim().
  ArenaSlot* next_returned = nullptr;
  ArenaMapping* mapping = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t capacity = 0;
  // Bytes at its start that may have pages.  While there are views, only
  // PinnedSlot::pin() writes this, in any thread.
  std::uint64_t populated = 0;
  // Bytes counted against the memory limit.  Changed only by Arena::charge().
  std::uint64_t charge = 0;
  bool may_have_views = false;      // views may exist; cleared by reclaim()
  bool retired = false;             // has been visible to a fork: never reused
  std::atomic<bool> pinned{false};  // a device reads its pages: they must stay
};

// The mapping and its slots.  Outlives the Arena while there are views or
// pinned slots.  Any thread may access all fields except `slots`, which needs
// the synchronization of the Arena.
struct ArenaMapping {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  // A stack of the slots whose last view has ended.  Any thread pushes to it;
  // reclaim() empties it.
  std::atomic<ArenaSlot*> returned_slots{nullptr};
  // One of the arena, of each slot with views and of each PinnedSlot.
  std::atomic<std::uint64_t> references{1};
  // Unmaps and deletes the mapping.  This is a pointer because the last
  // reference may be in another shared library than the arena.
  void (*destroy)(ArenaMapping*) noexcept = nullptr;
  std::deque<ArenaSlot> slots;  // all slots ever created; addresses are stable

  void release() noexcept {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(this);
  }
};

// Adds a view.  REQUIRES: the slot already has one.
inline void retain_view(ArenaSlot* slot) noexcept {
  slot->views.fetch_add(1, std::memory_order_relaxed);
}

// Ends a view.  Uses no lock, no allocation and no Python.
inline void release_view(ArenaSlot* slot) noexcept {
  if (slot->views.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  ArenaMapping* const mapping = slot->mapping;
  ArenaSlot* head = mapping->returned_slots.load(std::memory_order_relaxed);
  do {
    slot->next_returned = head;
  } while (!mapping->returned_slots.compare_exchange_weak(
      head, slot, std::memory_order_release, std::memory_order_relaxed));
  mapping->release();  // The reference that add_first_view() added.
}

class Arena {
 public:
  // Maps `head_bytes` of zeros, followed by the range for slots.  A
  // memory_limit of 0 means 80 % of the memory of the machine or of the control
  // group.
  static Result<std::unique_ptr<Arena>> create(std::uint64_t head_bytes,
                                               std::uint64_t memory_limit);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] std::byte* base() const noexcept { return mapping_->base; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return mapping_->bytes; }
  [[nodiscard]] std::uint64_t memory_limit() const noexcept {
    return memory_limit_;
  }
  [[nodiscard]] std::uint64_t charged() const noexcept {
    return charged_bytes_;
  }
  // Returns the charge of each slot that may have views, in bytes.
  [[nodiscard]] std::vector<std::uint64_t> viewed_sizes() const;

  // Returns a slot of at least `bytes`, or nullptr if the limit leaves no room.
  // With `beyond_limit`, returns nullptr only if the mapping itself is full.
  [[nodiscard]] ArenaSlot* take(std::uint64_t bytes, bool beyond_limit = false);

  // Records that the first `populated` bytes of the slot may have pages, and
  // charges the slot for exactly the bytes that may have pages.
  void charge_populated(ArenaSlot* slot, std::uint64_t populated) noexcept;

  // Takes back a slot that has had no views since take().
  void give_back(ArenaSlot* slot);

  // Returns the slot with views that contains the address, or nullptr.  The
  // caller holds a view of that slot, so its last view cannot end meanwhile.
  [[nodiscard]] ArenaSlot* viewed_slot_at(
      std::uintptr_t address) const noexcept;

  // Adds the first view of a taken slot.  The caller must end it with
  // release_view().
  void add_first_view(ArenaSlot* slot);

  // Collects the slots whose last view has ended, so that they can be reused.
  void reclaim();

  // Marks every slot with views as visible to a fork, so that it is never
  // reused.
  void retire_viewed() noexcept;

  // Closes the memfd in a forked child.  The destructor then frees no pages,
  // because they are also the parent's.
  void detach_after_fork() noexcept;

 private:
  Arena() = default;
  ArenaSlot* cut(std::uint64_t capacity);
  void merge_free_ranges();
  void drop_idle(std::uint64_t bytes);
  void drop(ArenaSlot* slot);
  bool make_room(std::uint64_t bytes);
  void charge(ArenaSlot* slot, std::uint64_t bytes) noexcept;

  int fd_ = -1;
  ArenaMapping* mapping_ = nullptr;
  std::uint64_t memory_limit_ = 0;
  std::uint64_t charged_bytes_ = 0;  // sum of the charges of all slots
  std::vector<ArenaSlot*> idle_;     // slots to reuse, newest last
  // ArenaSlot objects without a range, for reuse by cut().
  std::vector<ArenaSlot*> unused_slots_;
  // Lengths of the ranges that belong to no slot and have no pages, by offset.
  std::map<std::uint64_t, std::uint64_t> free_ranges_;
};

// Returns the memory that this process may use, in bytes: the RAM or the limit
// of the control group, whichever is less.
[[nodiscard]] std::uint64_t available_memory();

[[nodiscard]] inline std::uint64_t round_to_page(std::uint64_t bytes) noexcept {
  return (bytes + 4095) & ~std::uint64_t{4095};
}

}  // namespace gristmill
