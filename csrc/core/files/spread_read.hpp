// A SpreadRead is a read of many records that threads of a pool share out.
//
// Thread safety: one thread owns it; those of the pool are its own business.
//
// Fork: see wait().
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/pool.hpp"
#include "core/base/status.hpp"
#include "core/files/record_reader.hpp"

namespace gristmill {

class SpreadRead {
 public:
  using Request = RecordReader::Request;

  // Begins to read by `threads` threads of `pool`, or by fewer if there is less
  // to do.  `requests` are in order of `record`; they, the reader and the sink
  // outlive this.  Each thread has a share of `owner` as long as it is at it:
  // where that is what all of them belong to, nobody has to wait.
  SpreadRead(Pool& pool, std::size_t threads, const RecordReader& reader,
             std::span<const Request> requests, RecordReader::Sink& sink,
             const std::shared_ptr<const void>& owner = nullptr);
  SpreadRead(const SpreadRead&) = delete;
  SpreadRead& operator=(const SpreadRead&) = delete;

  // Returns true when all is done; false in a child that was forked meanwhile,
  // where the threads are missing.
  [[nodiscard]] bool wait() { return group_.wait(); }

  // As wait(), but for at most so long; empty if threads are still at it.
  [[nodiscard]] std::optional<bool> wait_for(std::chrono::milliseconds most) {
    return group_.wait_for(most);
  }

  // Begins nothing any more: what is not under way will not be read.
  void stop() { end_.store(0, std::memory_order_relaxed); }

  // How the first record that could not be read failed.
  // REQUIRES: wait() returned true; stop() was not called.
  [[nodiscard]] Status status() const;

 private:
  void work();
  Status read(std::size_t i);

  const RecordReader& reader_;
  RecordReader::Sink& sink_;
  const std::vector<std::span<const Request>> cuts_;
  std::atomic<std::size_t> next_{0};  // The first cut that nobody took.
  std::atomic<std::size_t> end_;      // No cut from here on is needed any more.
  std::vector<Status> statuses_;      // Of each cut, by who took it.
  TaskGroup group_;  // Last, so that it ends first: its tasks use the others.
};

}  // namespace gristmill
