#include "core/files/range_cache.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <ctime>
#include <utility>

#include "core/base/byte_buffer.hpp"
#include "core/base/crc32c.hpp"
#include "core/files/cache_file.hpp"

namespace gristmill {
namespace {

// Updates used_s of a slot at most this often.
constexpr std::uint64_t kTouchPeriod_s = 60;

// Maximum memory that a thread keeps between reads.
constexpr std::size_t kMaxSpareBufferBytes = std::size_t{4} << 20;

// Scrambles a number with the finalizer of splitmix64.
std::uint64_t spread(std::uint64_t state) {
  state += 0x9e3779b97f4a7c15;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

// Returns the initial value of the checksum of a page.
std::uint32_t seed_of(const RangeCache::Origin& origin, std::uint64_t page) {
  const std::uint64_t all = spread(
      spread(spread(spread(origin.file) ^ origin.version) ^ origin.size) ^
      page);
  return static_cast<std::uint32_t>(all);
}

// Fills `sums` with the checksums of consecutive pages, the first of which is
// page number `page`.  Replaces 0 by 1, because 0 marks a missing page.
void checksums(const RangeCache::Origin& origin, std::uint64_t page,
               std::span<const std::byte> bytes,
               std::span<std::uint32_t> sums) {
  constexpr auto kSize = std::size_t{RangeCache::kPageBytes};
  std::size_t k = 0;
  for (; bytes.size() >= 3 * kSize; k += 3, bytes = bytes.subspan(3 * kSize)) {
    const auto three = crc32c_of_three(
        {bytes.first(kSize), bytes.subspan(kSize, kSize),
         bytes.subspan(2 * kSize, kSize)},
        {seed_of(origin, page + k), seed_of(origin, page + k + 1),
         seed_of(origin, page + k + 2)});
    std::ranges::copy(three, sums.subspan(k).begin());
  }
  for (; !bytes.empty(); ++k) {
    const auto one = bytes.first(std::min(kSize, bytes.size()));
    sums[k] = crc32c(one, seed_of(origin, page + k));
    bytes = bytes.subspan(one.size());
  }
  std::ranges::replace(sums, 0U, 1U);
}

std::uint64_t now_s() { return static_cast<std::uint64_t>(std::time(nullptr)); }

// Returns this thread's buffer for the pages of a read that is not aligned.
ByteBuffer& page_buffer() {
  thread_local ByteBuffer buffer;
  return buffer;
}

}  // namespace

std::uint64_t RangeCache::min_bytes() { return begin_of(1); }

Result<std::shared_ptr<RangeCache>> RangeCache::open(const std::string& folder,
                                                     std::uint64_t bytes) {
  if (bytes < min_bytes()) {
    return Status(Code::kInvalidArgument, "bytes must be at least ",
                  min_bytes(), ", got ", bytes);
  }
  const std::uint64_t sets = (bytes - kPageBytes) / kSetBytes;
  CacheFile file = TRY(open_cache_file(folder, sets, begin_of(sets)));
  return std::shared_ptr<RangeCache>(
      new RangeCache(std::move(file.path), file.fd, file.is_writable, sets));
}

RangeCache::~RangeCache() { ::close(fd_); }

RangeCache::Span RangeCache::pages_of(const Origin& origin, Span range) {
  const std::uint64_t end =
      (range.end + kPageBytes - 1) / kPageBytes * kPageBytes;
  return {range.begin / kPageBytes * kPageBytes, std::min(end, origin.size)};
}

std::uint64_t RangeCache::checksums_at(CacheSlot slot) {
  return begin_of(slot.set) + sizeof(Heads) +
         slot.way * kRegionPages * sizeof(std::uint32_t);
}

std::uint64_t RangeCache::data_at(CacheSlot slot) {
  return begin_of(slot.set) + kSetHeadBytes + slot.way * kRegionBytes;
}

bool RangeCache::read_at(std::uint64_t at, void* to, std::size_t size) const {
  return pread_all(fd_, at, to, size);
}

// After a failed write, nothing more is written.
bool RangeCache::write_at(std::uint64_t at, const void* from,
                          std::size_t size) {
  if (pwrite_all(fd_, at, from, size)) return true;
  const int error = errno;
  if (is_writable_.exchange(false)) problem_.store(error);
  return false;
}

Status RangeCache::take_problem() {
  const int error = problem_.exchange(0);
  return error == 0 ? Status() : Status::system(error, path_, ": write failed");
}

std::array<std::uint64_t, 2> RangeCache::sets_of(const Origin& origin,
                                                 std::uint64_t region) const {
  // Hash the file without its version, so that a new version replaces the old
  // one.
  const std::uint64_t first = spread(spread(origin.file) ^ region);
  return {first % sets_, spread(first) % sets_};
}

// Returns the slot of a region, if it has one, and marks the slot as used.
std::optional<RangeCache::CacheSlot> RangeCache::find(const Origin& origin,
                                                      std::uint64_t region) {
  for (const std::uint64_t set : sets_of(origin, region)) {
    Heads heads;
    if (!read_at(begin_of(set), &heads, sizeof(heads))) return {};
    for (std::size_t way = 0; way < kWays; ++way) {
      const Head& head = heads[way];
      if (head.used_s != 0 && head.file == origin.file &&
          head.version == origin.version && head.region == region) {
        touch({set, way}, head);
        return CacheSlot{set, way};
      }
    }
  }
  return {};
}

// Like find(), but assigns a slot if the region has none: the slot of another
// version of the region, else a free slot of the set with more free slots, else
// occasionally the least recently used slot.  Returns nothing if the region
// gets no slot, or if the file cannot be read or written.
std::optional<RangeCache::CacheSlot> RangeCache::find_or_take(
    const Origin& origin, std::uint64_t region) {
  if (auto slot = find(origin, region)) return slot;
  std::optional<CacheSlot> chosen;
  std::size_t most_free = 0;
  CacheSlot oldest;
  std::uint64_t oldest_s = UINT64_MAX;
  for (const std::uint64_t set : sets_of(origin, region)) {
    Heads heads;
    if (!read_at(begin_of(set), &heads, sizeof(heads))) return {};
    std::size_t free_count = 0;
    std::size_t last_free = 0;
    for (std::size_t way = 0; way < kWays; ++way) {
      const Head& head = heads[way];
      if (head.used_s == 0) {
        ++free_count;
        last_free = way;
        continue;
      }
      if (head.file == origin.file && head.region == region) {
        return take(origin, region, {set, way})
                   ? std::optional(CacheSlot{set, way})
                   : std::nullopt;
      }
      if (head.used_s < oldest_s) {
        oldest_s = head.used_s;
        oldest = {set, way};
      }
    }
    if (free_count > most_free) {
      most_free = free_count;
      chosen = CacheSlot{set, last_free};
    }
  }
  if (!chosen && spread(eviction_draws_.fetch_add(1)) % kEvictOneIn == 0) {
    chosen = oldest;
  }
  if (!chosen || !take(origin, region, *chosen)) return {};
  return chosen;
}

bool RangeCache::take(const Origin& origin, std::uint64_t region,
                      CacheSlot slot) {
  // Clear the checksums first, so that the new head never has checksums of the
  // old region.
  const std::array<std::uint32_t, kRegionPages> none{};
  const Head head{origin.file, origin.version, region, now_s()};
  return write_at(checksums_at(slot), &none, sizeof(none)) &&
         write_at(begin_of(slot.set) + slot.way * sizeof(Head), &head,
                  sizeof(head));
}

void RangeCache::touch(CacheSlot slot, const Head& head) {
  const std::uint64_t now = now_s();
  if (now < head.used_s + kTouchPeriod_s || !is_writable_) return;
  write_at(
      begin_of(slot.set) + slot.way * sizeof(Head) + offsetof(Head, used_s),
      &now, sizeof(now));
}

namespace {

// Calls `each(part, offset in the range)` for each region of a range of pages,
// until it returns false; returns false in that case.  `Part` is always
// RangeCache::Part, which is private.
template <class Part, class Each>
bool each_part(RangeCache::Span pages, std::uint64_t region_bytes, Each each) {
  std::uint64_t at = pages.begin;
  while (at < pages.end) {
    const std::uint64_t region = at / region_bytes;
    const std::uint64_t end = std::min(pages.end, (region + 1) * region_bytes);
    const std::uint64_t bytes = end - at;
    Part part;
    part.region = region;
    part.first = (at % region_bytes) / RangeCache::kPageBytes;
    part.count = (bytes + RangeCache::kPageBytes - 1) / RangeCache::kPageBytes;
    part.bytes = bytes;
    if (!each(part, at - pages.begin)) return false;
    at = end;
  }
  return true;
}

}  // namespace

bool RangeCache::read(const Origin& origin, std::uint64_t offset,
                      std::span<std::byte> to) {
  if (to.empty()) return true;
  if (offset + to.size() > origin.size) return false;
  const Span pages = pages_of(origin, {offset, offset + to.size()});
  if (pages.begin == offset && pages.end == offset + to.size()) {
    return read_pages(origin, pages, to.data());
  }
  ByteBuffer& buffer = page_buffer();
  if (!buffer.reset(pages.end - pages.begin)) return false;
  std::byte* const all = buffer.all().data();
  const bool found = read_pages(origin, pages, all);
  if (found) std::copy_n(all + (offset - pages.begin), to.size(), to.data());
  buffer.shrink(kMaxSpareBufferBytes);
  return found;
}

bool RangeCache::read_pages(const Origin& origin, Span pages, std::byte* to) {
  return each_part<Part>(pages, kRegionBytes, [&](const Part& part, auto at) {
    return read_part(origin, part, to + at);
  });
}

bool RangeCache::read_part(const Origin& origin, const Part& part,
                           std::byte* to) {
  const auto slot = find(origin, part.region);
  if (!slot) return false;
  std::array<std::uint32_t, kRegionPages> sums;
  const std::span<std::uint32_t> wanted(sums.data(), part.count);
  if (!read_at(checksums_at(*slot) + part.first * sizeof(sums[0]), sums.data(),
               wanted.size_bytes()) ||
      std::ranges::find(wanted, 0U) != wanted.end() ||
      !read_at(data_at(*slot) + part.first * kPageBytes, to, part.bytes)) {
    return false;
  }
  std::array<std::uint32_t, kRegionPages> found;
  const std::span<std::uint32_t> here(found.data(), part.count);
  checksums(origin, part.region * kRegionPages + part.first, {to, part.bytes},
            here);
  return std::ranges::equal(here, wanted);
}

void RangeCache::write(const Origin& origin, std::uint64_t offset,
                       std::span<const std::byte> pages) {
  const Span span{offset, offset + pages.size()};
  each_part<Part>(span, kRegionBytes, [&](const Part& part, auto at) {
    return is_writable_ && write_part(origin, part, pages.data() + at);
  });
}

bool RangeCache::write_part(const Origin& origin, const Part& part,
                            const std::byte* from) {
  const auto slot = find_or_take(origin, part.region);
  if (!slot) return true;
  std::array<std::uint32_t, kRegionPages> sums;
  checksums(origin, part.region * kRegionPages + part.first, {from, part.bytes},
            {sums.data(), part.count});
  return write_at(data_at(*slot) + part.first * kPageBytes, from, part.bytes) &&
         write_at(checksums_at(*slot) + part.first * sizeof(sums[0]),
                  sums.data(), part.count * sizeof(sums[0]));
}

}  // namespace gristmill
