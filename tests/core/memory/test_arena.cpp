// Slots: reuse, growth, the memory limit, views that outlive the arena, forks.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "core/check.hpp"
#include "core/memory/arena.hpp"
#include "core/memory/pinned_slot.hpp"

using namespace gristmill;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::unique_ptr<Arena> make(std::uint64_t limit = 64 * kMiB) {
  auto made = Arena::create(10000, limit);
  CHECK(made.ok());
  return std::move(made).value();
}

void is_sealed_and_sparse() {
  const auto arena = make();
  CHECK_EQ(fcntl(arena->fd(), F_GET_SEALS),
           F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  CHECK(arena->bytes() >= available_memory());
  CHECK(ftruncate(arena->fd(), 0) != 0);
}

void the_last_idle_slot_is_taken_first() {
  const auto arena = make();
  ArenaSlot* const a = arena->take(kMiB);
  ArenaSlot* const b = arena->take(kMiB);
  CHECK(a->offset >= 10000 && a->offset % 4096 == 0);
  CHECK(b->offset >= a->offset + a->capacity);
  arena->give_back(a);
  arena->give_back(b);
  CHECK(arena->take(kMiB) == b);
  CHECK(arena->take(kMiB / 2) == a);
}

void a_slot_with_a_view_is_not_reused() {
  const auto arena = make();
  ArenaSlot* const slot = arena->take(kMiB);
  arena->add_first_view(slot);
  retain_view(slot);
  release_view(slot);
  arena->reclaim();
  CHECK_EQ(arena->viewed_sizes().size(), std::size_t{1});
  release_view(slot);
  arena->reclaim();
  CHECK_EQ(arena->viewed_sizes().size(), std::size_t{0});
  CHECK(arena->take(kMiB) == slot);
}

void the_limit_holds_and_idle_slots_make_room() {
  const auto arena = make(4 * kMiB);
  ArenaSlot* const a = arena->take(kMiB);
  ArenaSlot* const b = arena->take(2 * kMiB);
  CHECK(arena->take(2 * kMiB) == nullptr);
  arena->charge_populated(a, kMiB);
  arena->charge_populated(b, 4096);
  CHECK_EQ(arena->charged(), kMiB + 4096);
  arena->give_back(a);
  ArenaSlot* const c =
      arena->take(3 * kMiB);  // a is punched and its range free.
  CHECK(c != nullptr);
  CHECK(arena->charged() <= 4 * kMiB);
}

void views_outlive_the_arena() {
  auto arena = make();
  ArenaSlot* const slot = arena->take(kMiB);
  std::byte* const bytes = arena->base() + slot->offset;
  std::memset(bytes, 7, kMiB);
  arena->add_first_view(slot);
  arena.reset();
  CHECK(bytes[kMiB - 1] == std::byte{7});
  release_view(slot);  // Unmaps.
}

std::uintptr_t address_of(const Arena& arena, const ArenaSlot* slot) {
  return reinterpret_cast<std::uintptr_t>(arena.base() + slot->offset);
}

void a_slot_is_found_by_any_address_in_it_while_it_has_views() {
  const auto arena = make();
  ArenaSlot* const slot = arena->take(kMiB);
  const std::uintptr_t begin = address_of(*arena, slot);
  CHECK(arena->viewed_slot_at(begin) == nullptr);
  arena->add_first_view(slot);
  CHECK(arena->viewed_slot_at(begin) == slot);
  CHECK(arena->viewed_slot_at(begin + kMiB - 1) == slot);
  CHECK(arena->viewed_slot_at(begin - 1) == nullptr);
  CHECK(arena->viewed_slot_at(begin + kMiB) == nullptr);
  release_view(slot);
  CHECK(arena->viewed_slot_at(begin) == nullptr);
}

void a_pinned_slot_keeps_its_pages_and_is_reused() {
  const auto arena = make(4 * kMiB);
  ArenaSlot* const slot = arena->take(kMiB);
  std::byte* const bytes = arena->base() + slot->offset;
  std::memset(bytes, 7, kMiB);
  arena->add_first_view(slot);
  auto pinned = PinnedSlot::pin(slot);
  CHECK(PinnedSlot::pin(slot) == nullptr);
  CHECK_EQ(pinned->address(), address_of(*arena, slot));
  CHECK_EQ(pinned->bytes(), kMiB);
  release_view(slot);
  CHECK(arena->take(4 * kMiB) == nullptr);  // For want of its MiB.
  CHECK(bytes[0] == std::byte{7});
  CHECK(arena->take(kMiB) == slot);
  arena->give_back(slot);
  pinned.reset();
  CHECK(arena->take(4 * kMiB) != nullptr);
  CHECK(bytes[0] == std::byte{0});
}

void a_pinned_slot_outlives_arena_and_views() {
  auto arena = make();
  ArenaSlot* const slot = arena->take(kMiB);
  std::byte* const bytes = arena->base() + slot->offset;
  std::memset(bytes, 7, kMiB);
  arena->add_first_view(slot);
  auto pinned = PinnedSlot::pin(slot);
  release_view(slot);
  arena.reset();
  CHECK(bytes[kMiB - 1] == std::byte{7});
  pinned.reset();  // Unmaps.
}

void ranges_merge() {
  const auto arena = make(available_memory());
  // Each round needs a larger slot; without merging the mapping would be full.
  for (std::uint64_t size = kMiB; size < available_memory() / 3;
       size += size / 3) {
    ArenaSlot* const slot = arena->take(size);
    CHECK(slot != nullptr);
    arena->give_back(slot);
  }
}

void slots_seen_by_a_fork_are_retired() {
  const auto arena = make();
  ArenaSlot* const slot = arena->take(kMiB);
  arena->add_first_view(slot);
  arena->retire_viewed();
  release_view(slot);
  arena->reclaim();
  CHECK(arena->take(kMiB) != slot);
}

void many_kept_slots_are_collected_at_once() {
  const auto arena = make();
  std::vector<ArenaSlot*> slots;
  for (int i = 0; i < 1000; ++i) {
    slots.push_back(arena->take(4096));
    arena->add_first_view(slots.back());
  }
  for (ArenaSlot* slot : slots) release_view(slot);
  arena->reclaim();
  CHECK_EQ(arena->viewed_sizes().size(), std::size_t{0});
}

}  // namespace

int main() {
  is_sealed_and_sparse();
  the_last_idle_slot_is_taken_first();
  a_slot_with_a_view_is_not_reused();
  the_limit_holds_and_idle_slots_make_room();
  views_outlive_the_arena();
  a_slot_is_found_by_any_address_in_it_while_it_has_views();
  a_pinned_slot_keeps_its_pages_and_is_reused();
  a_pinned_slot_outlives_arena_and_views();
  ranges_merge();
  slots_seen_by_a_fork_are_retired();
  many_kept_slots_are_collected_at_once();
}
