// Which output is due, and which unit is to be published next.
//
// Streams give outputs in turn, except those that have ended; requests are
// answered in the order of asking.  Each stream has the units published for it
// and not yet opened, oldest first.  Plain arithmetic: no shared memory, no
// threads.
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
  std::vector<Position> positions;  // of each stream, after its last output
  std::uint32_t next_stream = 0;
  std::vector<bool> ended;  // of each stream
};

struct Stream {
  std::int64_t length = -1;     // records; -1 has no end that is known
  std::int64_t next_first = 0;  // first record of the next unit (arithmetic)
  bool sealed = false;          // nothing more is published
  bool ended = false;           // no output is left
  bool open = false;            // one of its units is being delivered
  Position delivered;           // position after the last delivered output
  Position opened;              // position after the last opened unit or part
  std::uint64_t last_id = 0;    // of the last unit published, 0 for none
  std::deque<std::uint64_t> pending;  // published, not opened
  // Of kind kRequest: what was asked and not opened, the pending ones first.
  std::deque<Position> requests;
};

class Order {
 public:
  // `unit_records` is the number of records in an arithmetic unit.
  // REQUIRES: equal sizes, at least one stream, next_stream < their number.
  Order(UnitKind kind, std::int64_t unit_records,
        const std::vector<std::int64_t>& lengths, const RunPosition& start);

  [[nodiscard]] RunPosition position() const;

  // The stream whose output is due, or -1 when all have ended; of requests the
  // one that was asked first, or -1.  Passes over ended streams as Grain does,
  // so that the next stream in a checkpoint is Grain's: one that has just ended
  // is passed over even where no other is left.
  [[nodiscard]] int due();

  // One more thing is asked of the stream.  REQUIRES: kind is kRequest.
  void ask(std::uint32_t stream, Position request);

  // The output of stream next_stream() was delivered, after which the stream is
  // at `position`: another stream's output is due.
  void deliver(Position position);

  // Another stream is due after all.
  void choose_next_stream(std::uint32_t stream) noexcept {
    next_stream_ = stream;
  }

  // The stream whose unit is expected to be needed first among those not yet
  // published, or -1 when there is nothing to publish.
  [[nodiscard]] int choose() const noexcept;
  [[nodiscard]] bool has_more(std::uint32_t stream) const noexcept;

  // Fills in first, count and prev of the stream's next unit.
  [[nodiscard]] Lease plan(std::uint32_t stream) const;

  // What that asks for.  REQUIRES: kind is kRequest, has_more(stream).
  [[nodiscard]] const Position& request(std::uint32_t stream) const;

  // Adds the unit of plan(), published as `id`.
  void add_unit(std::uint32_t stream, std::uint64_t id, std::int64_t count);

  // Removes the stream's youngest unit, which was withdrawn.
  void remove_youngest(const Lease& lease);

  // Opens the stream's oldest unit, after which the stream is at `position`.
  void open_unit(std::uint32_t stream, Position position);

  // Opens the first outputs of the stream's oldest unit.
  void open_part(std::uint32_t stream, Position position);

  // No output of the open unit or part is left.
  void close_unit(std::uint32_t stream) noexcept {
    streams_[stream].open = false;
  }

  // Publishes nothing more for the stream.
  void seal(std::uint32_t stream) noexcept { streams_[stream].sealed = true; }

  // Nothing behind the stream's pending unit `at` can be computed: the stream
  // ends there.  Returns the units behind it, which are no longer pending.
  std::vector<std::uint64_t> seal_behind(std::uint32_t stream, std::size_t at);

  // All its units were withdrawn: the stream goes on at `first`.
  void restart(std::uint32_t stream, std::int64_t first);

  // The records of each unit that is planned from now on.
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
  // Units published and not opened.
  [[nodiscard]] std::size_t pending() const noexcept { return pending_; }

 private:
  void step() noexcept;

  UnitKind kind_;
  std::int64_t unit_records_;
  std::uint32_t next_stream_;
  std::size_t pending_ = 0;
  std::vector<Stream> streams_;
  // Of kind kRequest: the stream of each request that is not opened.
  std::deque<std::uint32_t> asked_;
};

}  // namespace gristmill
