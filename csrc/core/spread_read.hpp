// A SpreadRead is a read of many records that threads of a pool share out.
//
// Thread safety: one thread owns it; those of the pool are its own business.
//
// Fork: see wait().
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "core/pool.hpp"
#include "core/record_reader.hpp"
#include "core/status.hpp"

namespace gristmill {

class SpreadRead {
 public:
  using Request = RecordReader::Request;

  // Begins to read by `threads` threads of `pool`, or by fewer if there is less
  // to do.  `requests` are in order of `record`; they, the reader and the sink
  // outlive this.
  SpreadRead(Pool& pool, std::size_t threads, const RecordReader& reader,
             std::span<const Request> requests, RecordReader::Sink& sink);
  SpreadRead(const SpreadRead&) = delete;
  SpreadRead& operator=(const SpreadRead&) = delete;

  // Returns true when all is done; false in a child that was forked meanwhile,
  // where the threads are missing.
  [[nodiscard]] bool wait() { return group_.wait(); }

  // How the first record that could not be read failed.
  // REQUIRES: wait() returned true.
  [[nodiscard]] Status status() const;

 private:
  void work();

  const RecordReader& reader_;
  RecordReader::Sink& sink_;
  const std::vector<std::span<const Request>> cuts_;
  std::atomic<std::size_t> next_{0};  // The first cut that nobody took.
  std::atomic<std::size_t> end_;      // No cut from here on is needed any more.
  std::vector<Status> statuses_;      // Of each cut, by who took it.
  TaskGroup group_;  // Last, so that it ends first: its tasks use the others.
};

}  // namespace gristmill
