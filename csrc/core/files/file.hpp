// A File is bytes that are read by offset, and that nobody should be changing:
// a LocalFile, or one that something else than the core knows how to read.
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

  // How the file likes to be read.
  struct Hints {
    // Reading this much in vain costs as much as another read.
    std::uint64_t gap_bytes = 4096;

    // A read of several records has at most this many bytes.  A local run of
    // neighbours stays in the second-level cache while it is decoded.
    std::uint64_t run_bytes = std::uint64_t{128} << 10;

    // What is read of the end of the file when it is opened, and before that,
    // in one read each; 0 for no more than is needed.
    std::uint64_t tail_bytes = 0;

    // How many reads should be under way at once for the answers to come as
    // fast as they can, because each waits for something far away.
    std::size_t parallel = 1;
  };

  // Bytes of a file.
  struct Range {
    const File* file = nullptr;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Reads many ranges at once, of all files that have the same one.
  class Fetcher {
   public:
    // Takes range number k, or how it failed; false if no more are wanted.
    using Arrive =
        std::function<bool(std::size_t k, Result<std::span<const std::byte>>)>;

    virtual ~Fetcher() = default;

    // Has all of `ranges` under way at a time, as far as that is good, and
    // calls `arrive` in this thread for each, in the order in which they come.
    virtual void fetch(std::span<const Range> ranges,
                       const Arrive& arrive) const = 0;
  };

  File(const File&) = delete;
  File& operator=(const File&) = delete;
  virtual ~File() = default;

  // What errors call it.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  // Its size when it was opened.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  [[nodiscard]] const Hints& hints() const noexcept { return hints_; }

  // A number that is another once the file was written to, as far as can be
  // told; 0 if nothing can.
  [[nodiscard]] virtual std::uint64_t version() const noexcept { return 0; }

  // Fills `to` with the bytes from `offset` on.
  virtual Status read(std::uint64_t offset, std::span<std::byte> to) const = 0;

  // What reads many of its ranges at once; null if nothing does.
  [[nodiscard]] virtual const Fetcher* fetcher() const noexcept {
    return nullptr;
  }

  // All bytes of a mapped file; empty for any other.
  [[nodiscard]] virtual std::span<const std::byte> mapped() const noexcept {
    return {};
  }

  // Asks for a range of a mapped file before it is touched.
  // REQUIRES: the range lies in the file.
  virtual void will_need(std::uint64_t /*offset*/,
                         std::uint64_t /*size*/) const noexcept {}

  // True if a mapped file has become shorter: it must not be touched.
  [[nodiscard]] virtual bool shrunk() const noexcept { return false; }

  // Says how the file differs from the one that was opened; empty if it does
  // not, as far as can be told.
  [[nodiscard]] virtual std::string change() const = 0;

 protected:
  File(std::string path, std::uint64_t size, const Hints& hints)
      : path_(std::move(path)), size_(size), hints_(hints) {}

 private:
  const std::string path_;
  const std::uint64_t size_;
  const Hints hints_;
};

}  // namespace gristmill
