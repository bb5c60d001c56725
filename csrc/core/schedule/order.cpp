#include "core/schedule/order.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

namespace gristmill {

Order::Order(UnitKind kind, std::int64_t unit_records,
             const std::vector<std::int64_t>& lengths, const RunPosition& start)
    : kind_(kind),
      unit_records_(unit_records),
      next_stream_(start.next_stream),
      streams_(lengths.size()) {
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    Stream& stream = streams_[s];
    stream.length = lengths[s];
    stream.delivered_position = stream.opened_position = start.positions[s];
    stream.next_first =
        kind == UnitKind::kRange ? stream.opened_position.front() : 0;
    stream.sealed = stream.ended = start.ended[s];
  }
}

RunPosition Order::position() const {
  RunPosition run{.positions = {}, .next_stream = next_stream_, .ended = {}};
  for (const Stream& stream : streams_) {
    run.positions.push_back(stream.delivered_position);
    run.ended.push_back(stream.ended);
  }
  return run;
}

bool Order::has_more(std::uint32_t s) const noexcept {
  const Stream& stream = streams_[s];
  if (stream.sealed) return false;
  if (kind_ == UnitKind::kRequest) {
    return stream.requests.size() > stream.pending.size();
  }
  return kind_ != UnitKind::kRange || stream.length < 0 ||
         stream.next_first < stream.length;
}

int Order::select_next_stream() {
  if (kind_ == UnitKind::kRequest) {
    if (!streams_[next_stream_].open) {
      if (request_streams_.empty()) return -1;
      next_stream_ = request_streams_.front();
    }
    return static_cast<int>(next_stream_);
  }
  for (;;) {
    Stream& stream = streams_[next_stream_];
    if (!stream.ended) {
      if (stream.open || !stream.pending.empty() || has_more(next_stream_)) {
        return static_cast<int>(next_stream_);
      }
      stream.ended = true;
    } else if (std::ranges::all_of(streams_, &Stream::ended)) {
      return -1;
    }
    move_to_next_stream();
  }
}

void Order::add_request(std::uint32_t s, Position request) {
  streams_[s].requests.push_back(std::move(request));
  request_streams_.push_back(s);
}

void Order::deliver(Position position) {
  streams_[next_stream_].delivered_position = std::move(position);
  move_to_next_stream();
}

void Order::move_to_next_stream() noexcept {
  next_stream_ = next_stream_ + 1 < streams_.size() ? next_stream_ + 1 : 0;
}

int Order::stream_to_publish() const noexcept {
  int best = -1;
  std::size_t best_ahead = std::numeric_limits<std::size_t>::max();
  std::uint32_t s = next_stream_;
  for (std::size_t n = 0; n < streams_.size(); ++n) {
    const Stream& stream = streams_[s];
    // Units have the same number of outputs, so the stream with the fewest
    // units ahead runs out first.  Ties go to the stream that is due first.
    const std::size_t ahead = stream.pending.size() + (stream.open ? 1 : 0);
    if (ahead < best_ahead && has_more(s)) {
      best = static_cast<int>(s);
      best_ahead = ahead;
    }
    s = s + 1 < streams_.size() ? s + 1 : 0;
  }
  return best;
}

Lease Order::plan(std::uint32_t s) const {
  const Stream& stream = streams_[s];
  Lease lease{{.stream = s, .kind = kind_, .count = unit_records_}};
  if (kind_ == UnitKind::kRange) {
    lease.first = stream.next_first;
    if (stream.length >= 0) {
      lease.count = std::min(lease.count, stream.length - lease.first);
    }
  } else {
    lease.prev = stream.last_id;
  }
  return lease;
}

const Position& Order::request(std::uint32_t s) const {
  const Stream& stream = streams_[s];
  return stream.requests[stream.pending.size()];
}

void Order::add_unit(std::uint32_t s, std::uint64_t id, std::int64_t count) {
  Stream& stream = streams_[s];
  stream.next_first += count;
  stream.last_id = id;
  stream.pending.push_back(id);
  ++pending_count_;
}

void Order::open_unit(std::uint32_t s, Position position) {
  streams_[s].pending.pop_front();
  if (kind_ == UnitKind::kRequest) {
    streams_[s].requests.pop_front();
    request_streams_.erase(std::ranges::find(request_streams_, s));
  }
  --pending_count_;
  open_part(s, std::move(position));
}

void Order::open_part(std::uint32_t s, Position position) {
  streams_[s].open = true;
  streams_[s].opened_position = std::move(position);
}

void Order::remove_youngest(const Lease& lease) {
  Stream& stream = streams_[lease.stream];
  assert(!stream.pending.empty() && stream.pending.back() == lease.id);
  stream.pending.pop_back();
  stream.next_first -= lease.count;
  stream.last_id = lease.prev;
  --pending_count_;
}

std::vector<std::uint64_t> Order::seal_after(std::uint32_t s,
                                             std::size_t last) {
  Stream& stream = streams_[s];
  stream.sealed = true;
  const auto end =
      stream.pending.begin() + static_cast<std::ptrdiff_t>(last) + 1;
  std::vector<std::uint64_t> removed(end, stream.pending.end());
  stream.pending.erase(end, stream.pending.end());
  pending_count_ -= removed.size();
  return removed;
}

void Order::restart(std::uint32_t s, std::int64_t first) {
  Stream& stream = streams_[s];
  pending_count_ -= stream.pending.size();
  stream.pending.clear();
  stream.requests.clear();
  std::erase(request_streams_, s);
  stream.next_first = first;
}

}  // namespace gristmill
