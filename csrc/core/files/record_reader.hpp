// A RecordReader reads records by number, in any order, to memory that the
// caller provides.  Files of one format implement it, and sets of files.
//
// Thread safety: const methods may overlap; a Sink is called by the thread
// that reads.
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
  // One record to read, and its number among those read together.
  struct Request {
    std::int64_t record = 0;
    std::size_t slot = 0;
  };

  class Sink {
   public:
    virtual ~Sink() = default;

    // Returns memory for a record of `size` bytes, which is written, and read
    // again, before the call that reads returns.
    virtual Result<std::span<std::byte>> place(std::size_t slot,
                                               std::uint64_t size) = 0;
  };

  // Records of one file that lie near each other, and their bytes there.
  struct Run {
    std::shared_ptr<const RecordReader> owner;  // Of the reader; may be null.
    const FileReader* reader = nullptr;
    std::vector<Request> requests;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;  // As `begin` if no bytes are needed.
  };

  RecordReader() = default;
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;
  virtual ~RecordReader() = default;

  // What errors call it: the path of a file.
  [[nodiscard]] virtual const std::string& path() const = 0;

  // How many records there are.
  [[nodiscard]] virtual std::uint64_t size() const = 0;

  // True if sizes() reads no record.
  [[nodiscard]] virtual bool knows_sizes() const = 0;

  // Sets sizes[slot] to the size of the record of each of `requests`, which
  // are in order of `record`.
  virtual Status sizes(std::span<const Request> requests,
                       std::span<std::int64_t> sizes) const = 0;

  // True if reading either record does most of the work of reading both, so
  // that two threads should not share them out.  Both are in [0, size()).
  [[nodiscard]] virtual bool shares_work(std::int64_t /*left*/,
                                         std::int64_t /*right*/) const {
    return false;
  }

  // How many threads should share out a read, whoever reads, because each of
  // them waits for something far away.
  [[nodiscard]] virtual std::size_t parallel() const { return 1; }

  // True if add_runs() says what read() needs, and read_fetched() reads better:
  // everything lies far away, behind something that fetches many ranges at
  // once.
  [[nodiscard]] virtual bool fetches() const { return false; }

  // Adds the runs that `requests`, which are in order of `record`, fall into.
  // REQUIRES: fetches().
  virtual Status add_runs(std::span<const Request> /*requests*/,
                          std::vector<Run>& /*runs*/) const {
    return {};
  }

  // Reads the records of `requests`, which are in order of `record`.  Stops at
  // the first error.
  virtual Status read(std::span<const Request> requests, Sink& sink) const = 0;

  // Checks that each of `records` is in [0, size()), and sorts them.
  Result<std::vector<Request>> plan(
      std::span<const std::int64_t> records) const;

  // Cuts sorted requests in at most `parts` spans of about equal length that
  // share no work: several threads may each read one.
  [[nodiscard]] std::vector<std::span<const Request>> cut(
      std::span<const Request> requests, std::size_t parts) const;
};

}  // namespace gristmill
