#include "core/memory/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

namespace gristmill {
namespace {

// The memfd has room for at least this many bytes of slots, even if the limits
// in sparse_size() are lower.
constexpr std::uint64_t kMinSlotBytes = std::uint64_t{64} << 20;

// Returns the limit in a file of a control group, or no limit if the file does
// not contain a number.
std::uint64_t limit_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t limit = 0;
  if (file >> limit) return limit;
  return std::numeric_limits<std::uint64_t>::max();
}

// Returns the least memory limit of the control groups of this process: of
// version 2 (memory.max) and of the root of version 1.
std::uint64_t control_group_limit() {
  const std::string root = "/sys/fs/cgroup";
  std::uint64_t limit =
      std::min(limit_in(root + "/memory.max"),
               limit_in(root + "/memory/memory.limit_in_bytes"));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;  // Not the group of version 2.
    // The limits of all ancestors apply too.
    std::string path = line.substr(3);
    while (path.size() > 1) {
      limit = std::min(limit, limit_in(root + path + "/memory.max"));
      path.resize(path.rfind('/'));
    }
  }
  return limit;
}

// Returns the size of the memfd.  It is twice the memory, because a slot may be
// larger than its pages, and free ranges may be too small for a slot.  It is at
// most half of RLIMIT_AS, to leave addresses for the rest of the process.
std::uint64_t sparse_size(std::uint64_t head_bytes) {
  std::uint64_t bytes = 2 * available_memory();
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    bytes = std::min<std::uint64_t>(bytes, limit.rlim_cur / 2);
  }
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    bytes = std::min<std::uint64_t>(bytes, limit.rlim_cur);
  }
  bytes &= ~std::uint64_t{4095};
  return std::max(bytes, round_to_page(head_bytes) + kMinSlotBytes);
}

}  // namespace

std::uint64_t available_memory() {
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(pages * page, control_group_limit());
}

Result<std::unique_ptr<Arena>> Arena::create(std::uint64_t head_bytes,
                                             std::uint64_t memory_limit) {
  int fd = memfd_create("gristmill", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0 && fd <= STDERR_FILENO) {
    // fd replaces a closed standard stream.  Move it, so that printed text does
    // not end up here.
    const int low =
        std::exchange(fd, fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    close(low);
  }
  if (fd < 0) return Status::system(errno, "memfd_create");
  const std::uint64_t bytes = sparse_size(head_bytes);
  void* base = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_NORESERVE, fd, 0);
  }
  if (base == MAP_FAILED) {
    const int error_number = errno;
    close(fd);
    return Status::system(error_number, "cannot map the arena of " +
                                            std::to_string(bytes) + " bytes");
  }
  std::unique_ptr<Arena> arena(new Arena);
  arena->fd_ = fd;
  arena->mapping_ = new ArenaMapping;
  arena->mapping_->base = static_cast<std::byte*>(base);
  arena->mapping_->bytes = bytes;
  arena->mapping_->destroy = [](ArenaMapping* mapping) noexcept {
    munmap(mapping->base, mapping->bytes);
    delete mapping;
  };
  arena->memory_limit_ =
      memory_limit != 0 ? memory_limit : available_memory() / 5 * 4;
  const std::uint64_t head = round_to_page(head_bytes);
  arena->free_ranges_[head] = bytes - head;
  return arena;
}

Arena::~Arena() {
  if (fd_ >= 0) {
    // Views keep the mapping, but should keep only the pages of their slots.
    reclaim();
    drop_idle(std::numeric_limits<std::uint64_t>::max());
    close(fd_);
  }
  mapping_->release();
}

std::vector<std::uint64_t> Arena::viewed_sizes() const {
  std::vector<std::uint64_t> bytes;
  for (const ArenaSlot& slot : mapping_->slots) {
    if (slot.may_have_views) bytes.push_back(slot.charge);
  }
  return bytes;
}

void Arena::charge(ArenaSlot* slot, std::uint64_t bytes) noexcept {
  charged_bytes_ += bytes - slot->charge;
  slot->charge = bytes;
}

ArenaSlot* Arena::take(std::uint64_t bytes, bool beyond_limit) {
  const std::uint64_t size = round_to_page(std::max<std::uint64_t>(bytes, 1));
  if (size > mapping_->bytes) return nullptr;
  ArenaSlot* slot = nullptr;
  const auto newest_fit = std::find_if(
      idle_.rbegin(), idle_.rend(),
      [&](const ArenaSlot* idle) { return idle->capacity >= size; });
  if (newest_fit != idle_.rend()) {
    slot = *newest_fit;
    idle_.erase(std::prev(newest_fit.base()));
  }
  const std::uint64_t old_charge = slot != nullptr ? slot->charge : 0;
  const std::uint64_t increase = size > old_charge ? size - old_charge : 0;
  if (!make_room(increase) && !beyond_limit) {
    if (slot != nullptr) idle_.push_back(slot);
    return nullptr;
  }
  if (slot == nullptr) slot = cut(size);
  if (slot == nullptr) return nullptr;
  // A reused slot may have pages beyond `size`.
  charge(slot, std::max(size, slot->populated));
  return slot;
}

// Drops idle slots until `bytes` more fit below the limit.  Returns false if
// they do not fit.
bool Arena::make_room(std::uint64_t bytes) {
  if (charged_bytes_ + bytes <= memory_limit_) return true;
  reclaim();
  drop_idle(charged_bytes_ + bytes > memory_limit_
                ? charged_bytes_ + bytes - memory_limit_
                : 0);
  return charged_bytes_ + bytes <= memory_limit_;
}

// Drops idle slots that are not pinned, the oldest first, until `bytes` less
// are charged or none are left.
void Arena::drop_idle(std::uint64_t bytes) {
  std::uint64_t freed = 0;
  std::erase_if(idle_, [&](ArenaSlot* slot) {
    if (freed >= bytes || slot->pinned.load(std::memory_order_acquire)) {
      return false;
    }
    freed += slot->charge;
    drop(slot);
    return true;
  });
}

// Cuts a slot from the first free range that is large enough.  If there is
// none, drops the idle slots, merges adjacent free ranges, and tries again.
// Returns nullptr if no free range is large enough.
ArenaSlot* Arena::cut(std::uint64_t capacity) {
  const auto find_range = [&] {
    return std::ranges::find_if(free_ranges_, [&](const auto& range) {
      const auto& [offset, length] = range;
      return length >= capacity;
    });
  };
  auto range = find_range();
  if (range == free_ranges_.end()) {
    drop_idle(std::numeric_limits<std::uint64_t>::max());
    merge_free_ranges();
    range = find_range();
  }
  if (range == free_ranges_.end()) return nullptr;
  if (unused_slots_.empty()) {
    unused_slots_.push_back(&mapping_->slots.emplace_back());
  }
  ArenaSlot* const slot = unused_slots_.back();
  unused_slots_.pop_back();
  slot->mapping = mapping_;
  slot->populated = 0;
  const auto [offset, length] = *range;
  slot->offset = offset;
  slot->capacity = capacity;
  free_ranges_.erase(range);
  if (length > capacity) free_ranges_[offset + capacity] = length - capacity;
  return slot;
}

void Arena::merge_free_ranges() {
  for (auto range = free_ranges_.begin(); range != free_ranges_.end();
       ++range) {
    auto next = std::next(range);
    while (next != free_ranges_.end() &&
           next->first == range->first + range->second) {
      range->second += next->second;
      next = free_ranges_.erase(next);
    }
  }
}

// Returns the pages of an idle slot to the system and makes its range free.
void Arena::drop(ArenaSlot* slot) {
  madvise(base() + slot->offset, slot->capacity, MADV_REMOVE);
  charge(slot, 0);
  free_ranges_[slot->offset] = slot->capacity;
  unused_slots_.push_back(slot);
}

void Arena::charge_populated(ArenaSlot* slot,
                             std::uint64_t populated) noexcept {
  slot->populated = std::max(
      slot->populated, std::min(round_to_page(populated), slot->capacity));
  charge(slot, slot->populated);
}

void Arena::give_back(ArenaSlot* slot) { idle_.push_back(slot); }

ArenaSlot* Arena::viewed_slot_at(std::uintptr_t address) const noexcept {
  // For an address before the mapping, this wraps to more than any offset.
  const std::uintptr_t offset =
      address - reinterpret_cast<std::uintptr_t>(mapping_->base);
  const auto found =
      std::ranges::find_if(mapping_->slots, [&](ArenaSlot& slot) {
        return slot.may_have_views && offset >= slot.offset &&
               offset < slot.offset + slot.capacity &&
               slot.views.load(std::memory_order_relaxed) != 0;
      });
  return found != mapping_->slots.end() ? &*found : nullptr;
}

void Arena::add_first_view(ArenaSlot* slot) {
  slot->may_have_views = true;
  slot->views.store(1, std::memory_order_relaxed);
  mapping_->references.fetch_add(1, std::memory_order_relaxed);
}

void Arena::reclaim() {
  ArenaSlot* slot =
      mapping_->returned_slots.exchange(nullptr, std::memory_order_acquire);
  for (; slot != nullptr; slot = slot->next_returned) {
    slot->may_have_views = false;
    // A retired slot stays charged, because the forked child still has its
    // pages.
    if (!slot->retired) idle_.push_back(slot);
  }
}

void Arena::retire_viewed() noexcept {
  for (ArenaSlot& slot : mapping_->slots) slot.retired |= slot.may_have_views;
}

void Arena::detach_after_fork() noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace gristmill
