// Decides which stream's output is due, and which unit is published next.
//
// Streams deliver outputs in turn, except those that have ended; requests are
// answered in the order in which they were made.  Each stream has a list of
// units that are published and not yet opened, oldest first.  This is plain
// arithmetic, without shared memory or threads.
//
// Thread safety: external synchronization (the scheduler's mutex).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/schedule/lease.hpp"

namespace gristmill {

// The position of a run, between two outputs.
struct RunPosition {
  std::vector<Position> positions;  // per stream, after its last output
  std::uint32_t next_stream = 0;
  std::vector<bool> ended;  // per stream
};

struct Stream {
  std::int64_t length = -1;     // records; -1 if unknown or infinite
  std::int64_t next_first = 0;  // first record of the next unit (kRange only)
  bool sealed = false;          // nothing more is published
  bool ended = false;           // no output is left
  bool open = false;            // one of its units is being delivered
  Position delivered_position;  // position after the last delivered output
  Position opened_position;     // position after the last opened unit or part
  std::uint64_t last_id = 0;    // the last published unit, 0 for none
  std::deque<std::uint64_t> pending;  // published, not opened
  // kRequest only: requests whose units were not opened, published ones first.
  std::deque<Position> requests;
};

class Order {
 public:
  // `unit_records` is the number of records in a unit of kind kRange.
  // REQUIRES: equal sizes, at least one stream, next_stream < their number.
  Order(UnitKind kind, std::int64_t unit_records,
        const std::vector<std::int64_t>& lengths, const RunPosition& start);

  [[nodiscard]] RunPosition position() const;

  // Selects the stream whose output is due and returns it, or -1 if all have
  // ended.  For requests, this is the stream of the oldest request, or -1.
  // Skips ended streams like Grain, so that checkpoints contain the same next
  // stream as Grain's: a stream that has just ended is skipped even if no other
  // is left.
  [[nodiscard]] int select_next_stream();

  // Adds a request to the stream.  REQUIRES: kind is kRequest.
  void add_request(std::uint32_t stream, Position request);

  // Records that the output of stream next_stream() was delivered, and moves
  // on to the next stream.  `position` is the stream's position after it.
  void deliver(Position position);

  // Makes this the stream to deliver from next.
  void set_next_stream(std::uint32_t stream) noexcept { next_stream_ = stream; }

  // Returns the stream whose next unpublished unit will probably be needed
  // first, or -1 if there are no more units.
  [[nodiscard]] int stream_to_publish() const noexcept;
  // Returns true if the stream has an unpublished unit.
  [[nodiscard]] bool has_more(std::uint32_t stream) const noexcept;

  // Returns a lease for the stream's next unit, with first, count and prev.
  [[nodiscard]] Lease plan(std::uint32_t stream) const;

  // The request of the stream's next unit.
  // REQUIRES: kind is kRequest, has_more(stream).
  [[nodiscard]] const Position& request(std::uint32_t stream) const;

  // Adds the unit of plan(), published as `id`.
  void add_unit(std::uint32_t stream, std::uint64_t id, std::int64_t count);

  // Removes the stream's youngest unit, which was withdrawn.
  void remove_youngest(const Lease& lease);

  // Opens the stream's oldest unit.  `position` is the stream's position after
  // the unit.
  void open_unit(std::uint32_t stream, Position position);

  // Opens the first outputs of the stream's oldest unit.
  void open_part(std::uint32_t stream, Position position);

  // Closes the open unit or part, all of whose outputs were delivered.
  void close_unit(std::uint32_t stream) noexcept {
    streams_[stream].open = false;
  }

  // Stops publishing units for the stream.
  void seal(std::uint32_t stream) noexcept { streams_[stream].sealed = true; }

  // Ends the stream after its pending unit `last`, because no later unit can be
  // computed.  Returns the later units, which are no longer pending.
  std::vector<std::uint64_t> seal_after(std::uint32_t stream, std::size_t last);

  // Continues the stream at `first` after all its units were withdrawn.  Drops
  // its requests.
  void restart(std::uint32_t stream, std::int64_t first);

  // Sets the number of records of each unit that is planned from now on.
  void set_unit_records(std::int64_t count) noexcept { unit_records_ = count; }
  [[nodiscard]] std::int64_t unit_records() const noexcept {
    return unit_records_;
  }

  [[nodiscard]] const Stream& stream(std::uint32_t s) const noexcept {
    return streams_[s];
  }
  [[nodiscard]] const std::vector<Stream>& streams() const noexcept {
    return streams_;
  }
  [[nodiscard]] std::uint32_t next_stream() const noexcept {
    return next_stream_;
  }
  // The number of units that are published and not opened.
  [[nodiscard]] std::size_t pending_count() const noexcept {
    return pending_count_;
  }

 private:
  void move_to_next_stream() noexcept;

  UnitKind kind_;
  std::int64_t unit_records_;
  std::uint32_t next_stream_;
  std::size_t pending_count_ = 0;
  std::vector<Stream> streams_;
  // kRequest only: the stream of each request that is not opened, oldest first.
  std::deque<std::uint32_t> request_streams_;
};

}  // namespace gristmill
