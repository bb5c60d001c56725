#include "core/files/spread_read.hpp"

#include <algorithm>

#include "core/files/fetched_read.hpp"

namespace gristmill {
SpreadRead::SpreadRead(Pool& pool, std::size_t threads,
                       const RecordReader& reader,
                       std::span<const Request> requests,
                       RecordReader::Sink& sink,
                       const std::shared_ptr<const void>& owner)
    : reader_(reader),
      sink_(sink),
      // If reads have a high latency, many small cuts balance the threads
      // better than a few long ones.  With a fetcher, a cut starts all of its
      // reads at once and can be long.
      cuts_(reader.cut(requests, reader.parallel() > 1 && !reader.fetches()
                                     ? requests.size()
                                     : threads)),
      end_(cuts_.size()),
      statuses_(cuts_.size()) {
  for (std::size_t i = 0; i < std::min(threads, cuts_.size()); ++i) {
    pool.run(group_, [this, owner] { work(); });
  }
}

// After an error, still reads the cuts before the failed one, because one of
// them may fail too and status() returns the first error.
void SpreadRead::work() {
  for (;;) {
    const std::size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    std::size_t end = end_.load(std::memory_order_relaxed);
    if (i >= end) return;
    statuses_[i] = read(i);
    if (statuses_[i].ok()) continue;
    while (i < end && !end_.compare_exchange_weak(end, i)) {
    }
  }
}

Status SpreadRead::read(std::size_t i) {
  if (!reader_.fetches()) return reader_.read(cuts_[i], sink_);
  return read_fetched(reader_, cuts_[i], sink_, [this, i] {
    return i < end_.load(std::memory_order_relaxed);
  });
}

Status SpreadRead::status() const {
  const auto failed = std::ranges::find_if(
      statuses_, [](const Status& status) { return !status.ok(); });
  return failed == statuses_.end() ? Status() : *failed;
}

}  // namespace gristmill
