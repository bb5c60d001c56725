// A File provides random-access reads.  Its contents must not change while it
// is open.  LocalFile reads local paths; other subclasses call back into the
// embedding language.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/base/status.hpp"

namespace gristmill {

class File {
 public:
  using Ptr = std::unique_ptr<const File>;

  // Hints for reading the file efficiently.
  struct Hints {
    // Two reads are merged if the gap between them is at most this many bytes:
    // reading and discarding the gap is no slower than a second read.
    std::uint64_t gap_bytes = 4096;

    // The maximum size of a read of several records, in bytes.  With this
    // default, a local run of neighbors stays in the second-level cache while
    // it is decoded.
    std::uint64_t run_bytes = std::uint64_t{128} << 10;

    // Bytes to read at once from the end of the file when it is opened; 0 to
    // read only what is needed.
    std::uint64_t tail_bytes = 0;

    // The number of concurrent reads that reaches the full throughput of a file
    // with a high latency.
    std::size_t parallel = 1;
  };

  // A range of bytes of a file.
  struct Range {
    const File* file = nullptr;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Reads many ranges at once, from all files that share the fetcher.
  class Fetcher {
   public:
    // Receives range number k, or the error of its read.  Returns false to
    // stop.
    using OnArrival =
        std::function<bool(std::size_t k, Result<std::span<const std::byte>>)>;

    virtual ~Fetcher() = default;

    // Requests all of `ranges` concurrently, up to a reasonable limit.  Calls
    // `on_arrival` in this thread for each range, in the order of arrival.
    virtual void fetch(std::span<const Range> ranges,
                       const OnArrival& on_arrival) const = 0;
  };

  File(const File&) = delete;
  File& operator=(const File&) = delete;
  virtual ~File() = default;

  // Returns the name that errors use for the file.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  // Returns the size that the file had when it was opened.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  [[nodiscard]] const Hints& hints() const noexcept { return hints_; }

  // Returns a number that changes when the file is modified, or 0 if this kind
  // of file cannot detect modification.  Detection is best effort.
  [[nodiscard]] virtual std::uint64_t version() const noexcept { return 0; }

  // Fills `to` with the bytes starting at `offset`.
  virtual Status read(std::uint64_t offset, std::span<std::byte> to) const = 0;

  // Returns an object that reads many ranges of the file at once, or null if
  // there is none.
  [[nodiscard]] virtual const Fetcher* fetcher() const noexcept {
    return nullptr;
  }

  // Returns all bytes if the file is mapped, else an empty span.
  [[nodiscard]] virtual std::span<const std::byte> mapped() const noexcept {
    return {};
  }

  // Starts to load a range of a mapped file before it is accessed.
  // REQUIRES: the range lies in the file.
  virtual void will_need(std::uint64_t /*offset*/,
                         std::uint64_t /*size*/) const noexcept {}

  // Returns true if a mapped file has become shorter and must not be accessed.
  [[nodiscard]] virtual bool has_shrunk() const noexcept { return false; }

  // Describes how the file changed after it was opened.  Returns an empty
  // string if no change is detected.
  [[nodiscard]] virtual std::string describe_change() const = 0;

 protected:
  File(std::string path, std::uint64_t size, const Hints& hints)
      : path_(std::move(path)), size_(size), hints_(hints) {}

 private:
  const std::string path_;
  const std::uint64_t size_;
  const Hints hints_;
};

}  // namespace gristmill
