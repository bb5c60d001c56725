// An Arena is one sparse, sealed memfd, mapped whole, and the ranges of it
// that are handed out as slots.
//
// Growing is handing out another range: nothing is remapped and no descriptor
// is passed after the start.  Idle slots are reused last-in first-out.  A slot
// is reused only after its last view ended in this process, with no fork while
// it was out.  A pinned slot is reused, but its pages are never given back.
//
// Thread safety: external synchronization, but for retain_view and
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

struct ArenaBook;

// Private to the process.
struct ArenaSlot {
  std::atomic<std::uint32_t> views{0};
  ArenaSlot* next_returned = nullptr;  // see ArenaBook::returned
  ArenaBook* book = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t capacity = 0;
  std::uint64_t populated = 0;      // bytes that may have pages
  std::uint64_t charge = 0;         // bytes counted against the memory limit
  bool shown = false;               // views are out, as far as was looked
  bool retired = false;             // a fork saw it: never reused
  std::atomic<bool> pinned{false};  // a device reads its pages: they stay
};

// Outlives the Arena while views do.
struct ArenaBook {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  // A stack of slots whose last view has ended, for the arena to collect.
  std::atomic<ArenaSlot*> returned{nullptr};
  std::atomic<std::uint64_t> holders{1};  // the arena and each slot that is out
  // Unmaps and deletes the book.  A pointer, since the last holder may be in
  // another shared library than the arena.
  void (*end)(ArenaBook*) noexcept = nullptr;
  std::deque<ArenaSlot> slots;  // all there ever were; addresses are stable

  void release() noexcept {
    if (holders.fetch_sub(1, std::memory_order_acq_rel) == 1) end(this);
  }
};

// Adds a view.  REQUIRES: the slot has one already.
inline void retain_view(ArenaSlot* slot) noexcept {
  slot->views.fetch_add(1, std::memory_order_relaxed);
}

// Ends a view.  No lock, no allocation, no Python.
inline void release_view(ArenaSlot* slot) noexcept {
  if (slot->views.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  ArenaBook* const book = slot->book;
  ArenaSlot* head = book->returned.load(std::memory_order_relaxed);
  do {
    slot->next_returned = head;
  } while (!book->returned.compare_exchange_weak(
      head, slot, std::memory_order_release, std::memory_order_relaxed));
  book->release();
}

class Arena {
 public:
  // Maps `head_bytes` of zeros and room for slots behind them.  A memory_limit
  // of 0 means 80 % of what the machine or the control group has.
  static Result<std::unique_ptr<Arena>> create(std::uint64_t head_bytes,
                                               std::uint64_t memory_limit);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] std::byte* base() const noexcept { return book_->base; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return book_->bytes; }
  [[nodiscard]] std::uint64_t memory_limit() const noexcept { return limit_; }
  [[nodiscard]] std::uint64_t charged() const noexcept { return charged_; }
  // The bytes of each slot that has live views.
  [[nodiscard]] std::vector<std::uint64_t> kept() const;

  // A slot of at least `bytes`, or nullptr when the limit leaves no room.
  // `beyond_limit`: nullptr only when the mapping itself is full.
  [[nodiscard]] ArenaSlot* take(std::uint64_t bytes, bool beyond_limit = false);

  // The slot's content is known: `populated` of its bytes may have pages.
  void settle(ArenaSlot* slot, std::uint64_t populated) noexcept;

  // Gives back a slot that was never shown.
  void give_back(ArenaSlot* slot);

  // The slot with views that the address lies in, or nullptr.
  [[nodiscard]] ArenaSlot* shown_at(std::uintptr_t address) const noexcept;

  // Counts one view of a taken slot, the caller's, to be ended by
  // release_view().
  void show(ArenaSlot* slot);

  // Collects slots whose last view has ended.
  void sweep();

  // Every slot with views was seen by a fork.
  void retire_shown() noexcept;

  // In a forked child: the parent's descriptor and pages are not ours.
  void forget() noexcept;

 private:
  Arena() = default;
  ArenaSlot* cut(std::uint64_t capacity);
  void merge_holes();
  void drop_idle(std::uint64_t bytes);
  void drop(ArenaSlot* slot);
  bool make_room(std::uint64_t bytes);
  void charge(ArenaSlot* slot, std::uint64_t bytes) noexcept;

  int fd_ = -1;
  ArenaBook* book_ = nullptr;
  std::uint64_t limit_ = 0;
  std::uint64_t charged_ = 0;
  std::vector<ArenaSlot*> idle_;                  // newest last
  std::vector<ArenaSlot*> spare_;                 // without a range
  std::map<std::uint64_t, std::uint64_t> holes_;  // offset to length, no pages
};

// Bytes of memory that this process may use: RAM or the control group's limit.
[[nodiscard]] std::uint64_t available_memory();

[[nodiscard]] inline std::uint64_t round_to_page(std::uint64_t bytes) noexcept {
  return (bytes + 4095) & ~std::uint64_t{4095};
}

}  // namespace gristmill
