// A SpreadRead reads many records with several threads of a pool.
//
// Thread safety: it belongs to one thread.  It synchronizes with the threads of
// the pool itself.
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

  // Starts to read in `threads` threads of `pool`, or in fewer if there is less
  // to do.  `requests` must be in the order of `record`.  They, the reader and
  // the sink must outlive this object.  Each thread holds a reference to
  // `owner` while it works: if `owner` keeps all of these alive, the caller
  // need not wait.
  SpreadRead(Pool& pool, std::size_t threads, const RecordReader& reader,
             std::span<const Request> requests, RecordReader::Sink& sink,
             const std::shared_ptr<const void>& owner = nullptr);
  SpreadRead(const SpreadRead&) = delete;
  SpreadRead& operator=(const SpreadRead&) = delete;

  // Returns true when all cuts are done.  Returns false in a child that was
  // forked meanwhile, because it does not have the threads.
  [[nodiscard]] bool wait() { return group_.wait(); }

  // Like wait(), but waits at most this long.  Returns nothing if threads are
  // still working.
  [[nodiscard]] std::optional<bool> wait_for(
      std::chrono::milliseconds max_wait) {
    return group_.wait_for(max_wait);
  }

  // Starts no further cuts.  Reads that have not started are skipped.
  void stop() { end_.store(0, std::memory_order_relaxed); }

  // Returns the error of the first record that could not be read, or ok().
  // REQUIRES: wait() returned true; stop() was not called.
  [[nodiscard]] Status status() const;

 private:
  void work();
  Status read(std::size_t i);

  const RecordReader& reader_;
  RecordReader::Sink& sink_;
  const std::vector<std::span<const Request>> cuts_;
  std::atomic<std::size_t> next_{0};  // The first cut that no thread took.
  std::atomic<std::size_t> end_;      // Cuts from here on are not needed.
  // The status of each cut, written by its thread.
  std::vector<Status> statuses_;
  // Last member, so that it is destroyed first: its tasks use the others.
  TaskGroup group_;
};

}  // namespace gristmill
