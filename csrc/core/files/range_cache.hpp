// A RangeCache keeps bytes of remote files in one local file.  Processes and
// programs share the file, and it outlives them.
//
// The file has slots for a fixed number of regions, grouped in sets of kWays
// slots.  A region is 1 MiB of a remote file.  A hash of the remote file and
// the region's number selects two sets, and the region may be in either of
// them.  A slot may hold any subset of the 4-KiB pages of its region, so that
// ranges are found again even if they are split differently.
//
//   superblock      magic, number of sets               one page
//   set             heads of kWays regions, then the
//                   checksums of their pages            kSetHeadBytes
//                   their data                          kWays * 1 MiB
//
// There are no locks: processes write anywhere at any time, and may be killed
// while they write.  A page is valid only if its checksum matches its bytes.
// The initial value of the checksum depends on the remote file, its version and
// the number of the page.  Bytes that are torn, damaged, or of another version
// or file therefore count as missing.  A checksum is written after its page.
//
// A full set usually keeps its contents, because that gives the most hits if
// reads cycle through more data than fit.  One write in kEvictOneIn replaces
// the least recently used slot, so that other data enter the cache over time.
// A region of another version of the same file is replaced at once.
//
// Thread safety: any thread may call any method.
//
// Fork: a child may continue to use it.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/base/status.hpp"

namespace gristmill {

class RangeCache {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;

  // A remote file in its current version.
  struct Origin {
    std::uint64_t file = 0;     // Hash of its name.
    std::uint64_t version = 0;  // Hash of its version, best effort.
    std::uint64_t size = 0;
  };

  // A range of bytes of a file.
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Returns the minimum size for open(): the superblock and one set.
  static std::uint64_t min_bytes();

  // Opens the cache in a folder.  Creates the folder if it does not exist, and
  // a cache of at most `bytes` bytes.  Removes caches of other sizes that are
  // not in use.
  static Result<std::shared_ptr<RangeCache>> open(const std::string& folder,
                                                  std::uint64_t bytes);

  ~RangeCache();
  RangeCache(const RangeCache&) = delete;
  RangeCache& operator=(const RangeCache&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  // Expands a range to page boundaries.  Only the last page of the file may be
  // shorter than a page.
  static Span pages_of(const Origin& origin, Span range);

  // Fills `to` with the bytes starting at `offset`.  Returns false if any of
  // them are not in the cache.  Page-aligned reads are served without a copy.
  bool read(const Origin& origin, std::uint64_t offset,
            std::span<std::byte> to);

  // Stores the pages from `offset` on; only the last page of the file may be
  // partial.  May skip some or all of them.
  // REQUIRES: `offset` is a multiple of kPageBytes.
  void write(const Origin& origin, std::uint64_t offset,
             std::span<const std::byte> pages);

  // Returns the error that disabled writing, the first time it is called after
  // that happened, and ok() at all other times.
  Status take_problem();

 private:
  static constexpr std::size_t kWays = 8;
  static constexpr std::uint64_t kRegionBytes = std::uint64_t{1} << 20;
  static constexpr std::size_t kRegionPages = kRegionBytes / kPageBytes;
  static constexpr std::uint32_t kEvictOneIn = 16;

  // Describes the contents of a slot.
  struct Head {
    std::uint64_t file = 0;
    std::uint64_t version = 0;
    std::uint64_t region = 0;
    std::uint64_t used_s = 0;  // Time of last use, in seconds; 0 if free.
  };
  using Heads = std::array<Head, kWays>;

  // A slot for one region: the number of its set and its number within the set.
  struct CacheSlot {
    std::uint64_t set = 0;
    std::size_t way = 0;
  };

  // Pages of one region.
  struct Part {
    std::uint64_t region = 0;
    std::size_t first = 0;  // Number of the first page within the region.
    std::size_t count = 0;
    std::uint64_t bytes = 0;  // Less than whole pages at the end of the file.
  };

  // The heads and a checksum of 4 bytes for each page (0 for none), padded to
  // whole pages.
  static constexpr std::uint64_t kSetHeadBytes =
      (sizeof(Heads) + kWays * kRegionPages * 4 + kPageBytes - 1) / kPageBytes *
      kPageBytes;
  static constexpr std::uint64_t kSetBytes =
      kSetHeadBytes + kWays * kRegionBytes;

  RangeCache(std::string path, int fd, bool is_writable, std::uint64_t sets)
      : path_(std::move(path)),
        fd_(fd),
        sets_(sets),
        is_writable_(is_writable),
        problem_(is_writable ? 0 : EACCES) {}

  // The offsets in the local file of a set, of the checksums of a slot, and of
  // its data.
  static std::uint64_t begin_of(std::uint64_t set) {
    return kPageBytes + set * kSetBytes;
  }
  static std::uint64_t checksums_at(CacheSlot slot);
  static std::uint64_t data_at(CacheSlot slot);
  [[nodiscard]] bool read_at(std::uint64_t at, void* to,
                             std::size_t size) const;
  bool write_at(std::uint64_t at, const void* from, std::size_t size);
  [[nodiscard]] std::array<std::uint64_t, 2> sets_of(
      const Origin& origin, std::uint64_t region) const;
  std::optional<CacheSlot> find(const Origin& origin, std::uint64_t region);
  std::optional<CacheSlot> find_or_take(const Origin& origin,
                                        std::uint64_t region);
  // Assigns a slot to a region, without pages.
  bool take(const Origin& origin, std::uint64_t region, CacheSlot slot);
  // Updates used_s of a slot if that is old.
  void touch(CacheSlot slot, const Head& head);
  bool read_pages(const Origin& origin, Span pages, std::byte* to);
  bool read_part(const Origin& origin, const Part& part, std::byte* to);
  // Returns false only if writing failed; may skip the part.
  bool write_part(const Origin& origin, const Part& part,
                  const std::byte* from);

  const std::string path_;
  const int fd_;
  const std::uint64_t sets_;
  // False if the file is read-only or a write failed.
  std::atomic<bool> is_writable_;
  // Counts regions that found both sets full.  The hash of the count decides
  // whether a slot is evicted.
  std::atomic<std::uint32_t> eviction_draws_{0};
  // The errno that take_problem() will report, or 0.  A file that is read-only
  // from the start is reported as EACCES.
  std::atomic<int> problem_;
};

}  // namespace gristmill
