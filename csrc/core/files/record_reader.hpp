// A RecordReader reads records by number, in any order, to memory that the
// caller provides.  Each file format implements it, and so do sets of files.
//
// Thread safety: const methods may overlap.  The reading thread calls the Sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.hpp"

namespace gristmill {

class FileReader;

class RecordReader {
 public:
  // A record to read, and its position among the records read together.
  struct Request {
    std::int64_t record = 0;
    std::size_t slot = 0;
  };

  // A range of the items of a record.  An item has a fixed number of bytes.
  struct Slice {
    std::int64_t record = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  // The bytes of a record in a mapped file.
  struct View {
    std::shared_ptr<const void> owner;  // Keeps the file mapped.
    std::span<const std::byte> bytes;
  };

  class Sink {
   public:
    virtual ~Sink() = default;

    // Returns memory for a record of `size` bytes.  The reader writes the
    // record there, and may read it back, before read() returns.  The threads
    // of a SpreadRead call this at the same time, for different slots.
    virtual Result<std::span<std::byte>> place(std::size_t slot,
                                               std::uint64_t size) = 0;
  };

  // Records of one file that lie near each other, and their range of bytes.
  struct Run {
    // Keeps `reader` alive; may be null.
    std::shared_ptr<const RecordReader> owner;
    const FileReader* reader = nullptr;
    std::vector<Request> requests;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;  // Equals `begin` if no bytes are needed.
  };

  RecordReader() = default;
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;
  virtual ~RecordReader() = default;

  // Returns the name that errors use for the reader: the path of a file.
  [[nodiscard]] virtual const std::string& path() const = 0;

  // Returns the number of records.
  [[nodiscard]] virtual std::uint64_t size() const = 0;

  // Returns true if sizes() does not need to read records.
  [[nodiscard]] virtual bool knows_sizes() const = 0;

  // Sets sizes[slot] to the size of the record of each request.  `requests`
  // must be in the order of `record`.
  virtual Status sizes(std::span<const Request> requests,
                       std::span<std::int64_t> sizes) const = 0;

  // Returns true if reading one of the records does most of the work of reading
  // both, so that the same thread should read them.  Both must be in [0,
  // size()).
  [[nodiscard]] virtual bool shares_work(std::int64_t /*left*/,
                                         std::int64_t /*right*/) const {
    return false;
  }

  // Returns the number of threads that should share a read.  It exceeds 1 if
  // reads have a high latency.
  [[nodiscard]] virtual std::size_t parallel() const { return 1; }

  // Returns true if read_fetched() is faster than read().  All files are then
  // remote and have a fetcher, and add_runs() returns the ranges that read()
  // needs.
  [[nodiscard]] virtual bool fetches() const { return false; }

  // Adds the runs that contain `requests`, which must be in the order of
  // `record`.
  // REQUIRES: fetches().
  virtual Status add_runs(std::span<const Request> /*requests*/,
                          std::vector<Run>& /*runs*/) const {
    return {};
  }

  // Returns true if records need not be copied, because all files are mapped.
  [[nodiscard]] virtual bool has_views() const { return false; }

  // Sets views[slot] to the record of each request.  `requests` must be in the
  // order of `record`.
  // REQUIRES: has_views().
  virtual Status views(std::span<const Request> /*requests*/,
                       std::span<View> /*views*/) const {
    return {};
  }

  // Returns a reader whose record i is slices[i], of items of `item_bytes`
  // bytes.  It reads only the bytes of slices, and its errors name this
  // reader's records.  `slices` must be in the order of `record`, whose numbers
  // must be in [0, size()).  Fails if a slice is not a range of its record.
  [[nodiscard]] virtual Result<std::shared_ptr<const RecordReader>> slices(
      std::span<const Slice> slices, std::uint64_t item_bytes) const;

  // Reads the records of `requests`, which must be in the order of `record`.
  // Stops at the first error.
  virtual Status read(std::span<const Request> requests, Sink& sink) const = 0;

  // Checks that all `records` are in [0, size()), and returns them sorted.
  Result<std::vector<Request>> plan(
      std::span<const std::int64_t> records) const;

  // Cuts sorted requests into at most `parts` spans of similar length.  No two
  // spans share work, so different threads may read them.
  [[nodiscard]] std::vector<std::span<const Request>> cut(
      std::span<const Request> requests, std::size_t parts) const;
};

}  // namespace gristmill
