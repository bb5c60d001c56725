#include "core/memory/control.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

namespace gristmill {

// Other programs read the mapping at these offsets.
static_assert(offsetof(Control, owner) == 8 && offsetof(Control, kind) == 12 &&
              offsetof(Control, memory_limit) == 16 &&
              offsetof(Control, workers) == 24 &&
              offsetof(Control, units) == 28 &&
              offsetof(Control, streams) == 32 &&
              offsetof(Control, waiting_for) == 192 &&
              offsetof(Control, delivered) == 256 && sizeof(Control) == 320);
static_assert(offsetof(WorkerCell, admitted) == 0 &&
              offsetof(WorkerCell, stop) == 4 &&
              offsetof(WorkerCell, pid) == 8 &&
              offsetof(WorkerCell, asleep) == 64 &&
              offsetof(WorkerCell, started) == 68 &&
              offsetof(WorkerCell, current_record) == 72 &&
              offsetof(WorkerCell, counts) == 8064 &&
              sizeof(WorkerCell) == 10176);
static_assert(offsetof(Counts, claimed_ns) == 0 &&
              offsetof(Counts, outputs) == 24);
static_assert(offsetof(Unit, word) == 0 && offsetof(Unit, task) == 8 &&
              offsetof(Task, stream) == 0 && offsetof(Task, first) == 8 &&
              offsetof(Task, count) == 16 && offsetof(Unit, outputs) == 68 &&
              sizeof(Unit) == 128);

namespace {

constexpr std::uint64_t kPageBytes = 4096;

// MADV_POPULATE_WRITE, which older headers do not define.
constexpr int kPopulateWrite = 23;

std::uint64_t positions_offset(std::uint32_t workers,
                               std::uint32_t units) noexcept {
  return sizeof(Control) + workers * sizeof(WorkerCell) + units * sizeof(Unit);
}

// Rounds up to whole cache lines, because the two positions of a unit have
// different writers.
std::uint64_t position_bytes(std::uint32_t capacity) noexcept {
  return (capacity * sizeof(std::int64_t) + 63) & ~std::uint64_t{63};
}

}  // namespace

std::uint64_t Region::head_bytes(std::uint32_t workers, std::uint32_t units,
                                 std::uint32_t position_capacity) noexcept {
  return positions_offset(workers, units) +
         2 * units * position_bytes(position_capacity);
}

std::int64_t* Region::position(std::uint64_t index) const noexcept {
  const Control& c = control();
  return reinterpret_cast<std::int64_t*>(
      base_ + positions_offset(c.workers, c.units) +
      index * position_bytes(c.position_capacity));
}

bool Region::populate(const void* address, std::uint64_t bytes,
                      int fd) const noexcept {
  const auto offset = static_cast<std::uint64_t>(
      static_cast<const std::byte*>(address) - base_);
  const std::uint64_t from = offset & ~(kPageBytes - 1);
  const std::uint64_t length = offset + bytes - from;
  while (madvise(base_ + from, length, kPopulateWrite) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    // Kernels before Linux 5.14 do not have MADV_POPULATE_WRITE.
    return errno == EINVAL && fd >= 0 &&
           fallocate(fd, 0, static_cast<off_t>(from),
                     static_cast<off_t>(length)) == 0;
  }
  return true;
}

bool Region::store(const Position& position, std::int64_t* to,
                   int fd) const noexcept {
  assert(!position.empty() && position.size() <= control().position_capacity);
  if (control().position_capacity > kSmallPosition &&
      !populate(to, position.size() * sizeof(std::int64_t), fd)) {
    return false;
  }
  std::ranges::copy(position, to);
  return true;
}

}  // namespace gristmill
