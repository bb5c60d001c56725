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

constexpr std::uint64_t kSweepAtOnce = 128;
constexpr std::uint64_t kSmallestHeap = std::uint64_t{64} << 20;

// Books that nobody holds any more.  The last view may end inside any
// allocation, so it frees nothing: the next arena does.
std::atomic<ArenaBook*> unheld{nullptr};

void retire_book(ArenaBook* book) noexcept {
  munmap(book->base, book->bytes);
  book->next = unheld.load(std::memory_order_relaxed);
  while (!unheld.compare_exchange_weak(
      book->next, book, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void reap_books() {
  ArenaBook* book = unheld.exchange(nullptr, std::memory_order_acquire);
  while (book != nullptr) delete std::exchange(book, book->next);
}

// The number in a control group's file; no limit where there is none.
std::uint64_t limit_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t limit = 0;
  if (file >> limit) return limit;
  return std::numeric_limits<std::uint64_t>::max();
}

std::uint64_t control_group_limit() {
  const std::string root = "/sys/fs/cgroup";
  std::uint64_t limit =
      std::min(limit_in(root + "/memory.max"),
               limit_in(root + "/memory/memory.limit_in_bytes"));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;
    // A limit of any ancestor binds as well.
    std::string path = line.substr(3);
    while (path.size() > 1) {
      limit = std::min(limit, limit_in(root + path + "/memory.max"));
      path.resize(path.rfind('/'));
    }
  }
  return limit;
}

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
  return std::max(bytes, round_to_page(head_bytes) + kSmallestHeap);
}

}  // namespace

std::uint64_t available_memory() {
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(pages * page, control_group_limit());
}

Result<std::unique_ptr<Arena>> Arena::create(std::uint64_t head_bytes,
                                             std::uint64_t memory_limit) {
  reap_books();
  int fd = memfd_create("gristmill", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0 && fd <= STDERR_FILENO) {
    // A standard stream that is closed; what is printed must not land here.
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
  arena->book_ = new ArenaBook;
  arena->book_->base = base;
  arena->book_->bytes = bytes;
  arena->book_->end = &retire_book;
  arena->limit_ = memory_limit != 0 ? memory_limit : available_memory() / 5 * 4;
  const std::uint64_t head = round_to_page(head_bytes);
  arena->holes_[head] = bytes - head;
  return arena;
}

Arena::~Arena() {
  // Without this, one kept batch would keep the pages of all others.
  if (!forgotten_) {
    sweep(true);
    drop_idle(std::numeric_limits<std::uint64_t>::max());
  }
  if (fd_ >= 0) close(fd_);
  if (book_->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    book_->end(book_);
  }
}

std::uint64_t Arena::kept_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const ArenaSlot* slot : out_) bytes += slot->charge;
  return bytes;
}

void Arena::charge(ArenaSlot* slot, std::uint64_t bytes) noexcept {
  charged_ += bytes - slot->charge;
  slot->charge = bytes;
}

ArenaSlot* Arena::take(std::uint64_t bytes, bool beyond_limit) {
  const std::uint64_t wanted = round_to_page(std::max<std::uint64_t>(bytes, 1));
  if (wanted > book_->bytes) return nullptr;
  ArenaSlot* slot = nullptr;
  for (std::size_t i = idle_.size(); i-- > 0;) {
    if (idle_[i]->capacity < wanted) continue;
    slot = idle_[i];
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
    break;
  }
  const std::uint64_t has = slot != nullptr ? slot->charge : 0;
  const std::uint64_t more = wanted > has ? wanted - has : 0;
  if (!make_room(more) && !beyond_limit) {
    if (slot != nullptr) idle_.push_back(slot);
    return nullptr;
  }
  if (slot == nullptr) slot = cut(wanted);
  if (slot == nullptr) return nullptr;
  charge(slot, std::max(wanted, slot->populated));
  return slot;
}

// Punches holes into idle slots until `bytes` more fit below the limit.
bool Arena::make_room(std::uint64_t bytes) {
  if (charged_ + bytes <= limit_) return true;
  sweep(true);
  drop_idle(charged_ + bytes > limit_ ? charged_ + bytes - limit_ : 0);
  return charged_ + bytes <= limit_;
}

// Drops idle slots that are not pinned, the oldest first, until so many bytes
// less are charged or none is left.
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

// First fit; when no hole is large enough, idle slots become holes again.
ArenaSlot* Arena::cut(std::uint64_t capacity) {
  auto hole = holes_.begin();
  const auto find = [&] {
    return std::find_if(holes_.begin(), holes_.end(), [&](const auto& range) {
      return range.second >= capacity;
    });
  };
  hole = find();
  if (hole == holes_.end() && !idle_.empty()) {
    drop_idle(std::numeric_limits<std::uint64_t>::max());
    hole = find();
  }
  if (hole == holes_.end()) return nullptr;
  if (spare_.empty()) spare_.push_back(&book_->slots.emplace_back());
  ArenaSlot* const slot = spare_.back();
  spare_.pop_back();
  slot->book = book_;
  slot->populated = 0;
  slot->offset = hole->first;
  slot->capacity = capacity;
  const std::uint64_t rest = hole->second - capacity;
  holes_.erase(hole);
  if (rest > 0) holes_[slot->offset + capacity] = rest;
  return slot;
}

// Gives an idle slot's pages back and makes a hole of its range.
void Arena::drop(ArenaSlot* slot) {
  madvise(base() + slot->offset, slot->capacity, MADV_REMOVE);
  charge(slot, 0);
  std::uint64_t offset = slot->offset;
  std::uint64_t length = slot->capacity;
  auto next = holes_.lower_bound(offset);
  if (next != holes_.end() && next->first == offset + length) {
    length += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      length += before->second;
      holes_.erase(before);
    }
  }
  holes_[offset] = length;
  spare_.push_back(slot);
}

void Arena::settle(ArenaSlot* slot, std::uint64_t populated) noexcept {
  slot->populated = std::max(
      slot->populated, std::min(round_to_page(populated), slot->capacity));
  charge(slot, slot->populated);
}

void Arena::give_back(ArenaSlot* slot) { idle_.push_back(slot); }

ArenaSlot* Arena::shown_at(std::uintptr_t address) const noexcept {
  const std::uintptr_t offset =
      address - reinterpret_cast<std::uintptr_t>(book_->base);
  const auto found =
      std::find_if(out_.begin(), out_.end(), [&](ArenaSlot* slot) {
        return offset >= slot->offset &&
               offset < slot->offset + slot->capacity &&
               slot->views.load(std::memory_order_relaxed) != 0;
      });
  return found != out_.end() ? *found : nullptr;
}

void Arena::show(ArenaSlot* slot) {
  slot->returned.store(0, std::memory_order_relaxed);
  slot->views.store(1, std::memory_order_relaxed);
  book_->holders.fetch_add(1, std::memory_order_relaxed);
  out_.push_back(slot);
}

void Arena::sweep(bool all) {
  const auto collect = [&](std::size_t i) {
    ArenaSlot* const slot = out_[i];
    if (slot->returned.load(std::memory_order_acquire) == 0) return false;
    out_[i] = out_.back();
    out_.pop_back();
    // A retired slot stays charged: its pages live on in the forked child.
    if (!slot->retired) idle_.push_back(slot);
    return true;
  };
  if (all || out_.size() <= 2 * kSweepAtOnce) {
    for (std::size_t i = out_.size(); i-- > 0;) collect(i);
    return;
  }
  // The newest end first, mostly; the others are looked at in turn.
  for (std::size_t n = 0, i = out_.size(); n < kSweepAtOnce; ++n) collect(--i);
  for (std::size_t n = 0; n < kSweepAtOnce && !out_.empty(); ++n) {
    cursor_ = cursor_ + 1 < out_.size() ? cursor_ + 1 : 0;
    collect(cursor_);
  }
}

void Arena::retire_out() noexcept {
  for (ArenaSlot* slot : out_) slot->retired = true;
}

void Arena::forget() noexcept {
  forgotten_ = true;
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace gristmill
