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

void test_arena_is_sealed_and_sparse() {
  const auto arena = make();
  CHECK_EQ(fcntl(arena->fd(), F_GET_SEALS),
           F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  CHECK(arena->bytes() >= available_memory());
  CHECK(ftruncate(arena->fd(), 0) != 0);
}

void test_newest_idle_slot_is_reused_first() {
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

void test_slot_with_view_is_not_reused() {
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

void test_limit_drops_idle_slots() {
  const auto arena = make(4 * kMiB);
  ArenaSlot* const a = arena->take(kMiB);
  ArenaSlot* const b = arena->take(2 * kMiB);
  CHECK(arena->take(2 * kMiB) == nullptr);
  arena->charge_populated(a, kMiB);
  arena->charge_populated(b, 4096);
  CHECK_EQ(arena->charged(), kMiB + 4096);
  arena->give_back(a);
  ArenaSlot* const c = arena->take(
      3 * kMiB);  // The pages of a are freed, and its range is a hole.
  CHECK(c != nullptr);
  CHECK(arena->charged() <= 4 * kMiB);
}

void test_views_outlive_arena() {
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

void test_viewed_slot_at_finds_slot_with_views() {
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

void test_pinned_slot_keeps_pages_and_is_reused() {
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
  CHECK(arena->take(4 * kMiB) == nullptr);  // One MiB is missing.
  CHECK(bytes[0] == std::byte{7});
  CHECK(arena->take(kMiB) == slot);
  arena->give_back(slot);
  pinned.reset();
  CHECK(arena->take(4 * kMiB) != nullptr);
  CHECK(bytes[0] == std::byte{0});
}

void test_pinned_slot_outlives_arena_and_views() {
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

void test_freed_ranges_merge() {
  const auto arena = make(available_memory());
  // Each round needs a larger slot.  Without merging, the mapping would be
  // full.
  for (std::uint64_t size = kMiB; size < available_memory() / 3;
       size += size / 3) {
    ArenaSlot* const slot = arena->take(size);
    CHECK(slot != nullptr);
    arena->give_back(slot);
  }
}

void test_slots_with_views_at_fork_are_retired() {
  const auto arena = make();
  ArenaSlot* const slot = arena->take(kMiB);
  arena->add_first_view(slot);
  arena->retire_viewed();
  release_view(slot);
  arena->reclaim();
  CHECK(arena->take(kMiB) != slot);
}

void test_reclaim_collects_many_slots() {
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
  test_arena_is_sealed_and_sparse();
  test_newest_idle_slot_is_reused_first();
  test_slot_with_view_is_not_reused();
  test_limit_drops_idle_slots();
  test_views_outlive_arena();
  test_viewed_slot_at_finds_slot_with_views();
  test_pinned_slot_keeps_pages_and_is_reused();
  test_pinned_slot_outlives_arena_and_views();
  test_freed_ranges_merge();
  test_slots_with_views_at_fork_are_retired();
  test_reclaim_collects_many_slots();
}
