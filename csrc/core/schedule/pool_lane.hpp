// A lane of a host's pool: takes the place of a worker, and has the pool
// compute each unit that it claims.
//
// Both ends are processes of one machine and of one build, so packets have the
// integers of the machine.  A request has, as int64, the stream, 1 if the unit
// is sequential, the first record, the number of records, the attempt, the id
// of a request or -1, and the position before the unit.  A result begins with a
// ResultHeader.  Then come the position after the unit, the bytes of the slot,
// and details that only the consumer reads.  Packets that begin with another
// byte are not results.
//
// Thread safety: a PoolLane belongs to one thread.  Any thread may use
// PoolResults.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/mutex.hpp"
#include "core/schedule/worker_end.hpp"

namespace gristmill {

// The first word of a result.
inline constexpr std::int64_t kPoolResult = 'C';

struct ResultHeader {
  std::int64_t kind;  // kPoolResult
  std::int64_t status;
  std::int64_t outputs;
  std::int64_t position_integers;
  std::int64_t slot_bytes;
};

// A unit that the pool has computed for a lane.
struct PoolResult {
  std::uint32_t stream = 0;
  std::uint64_t unit = 0;
  std::int64_t server = 0;  // identifies the connection to a server
  std::int64_t start_ns = 0;
  std::int64_t arrival_ns = 0;
  std::string details = {};
};

// The results of all lanes of a scheduler that the consumer has not taken.
class PoolResults {
 public:
  void add(PoolResult result) {
    const MutexLock lock(mutex_);
    results_.push_back(std::move(result));
  }
  [[nodiscard]] std::vector<PoolResult> take() {
    const MutexLock lock(mutex_);
    return std::exchange(results_, {});
  }

 private:
  Mutex mutex_;
  std::vector<PoolResult> results_ GUARDED_BY(mutex_);
};

// The reason why PoolLane::serve() returns.
struct PoolEvent {
  enum class Kind {
    kStop,     // the parent requests a stop
    kRequest,  // the caller must send `packet`: the unit is of kind kRequest,
               // or its request does not fit into a packet
    kPacket,   // `packet` is not a result; empty if the server is gone
  };
  Kind kind = Kind::kStop;
  std::string packet = {};
};

class PoolLane {
 public:
  // The results of units are added before the units are committed.
  // REQUIRES: both outlive the lane.
  PoolLane(WorkerEnd& end, PoolResults& results);

  // Has the server at the other end of a socket compute units.  If `sends` is
  // false, the server has the request for the unit that this lane holds.  A
  // unit that it holds when this returns stays claimed.
  [[nodiscard]] PoolEvent serve(int socket, std::int64_t server, bool sends);

  // The number of units that the pool has computed for this lane.
  [[nodiscard]] std::uint64_t served() const noexcept { return served_; }

 private:
  [[nodiscard]] std::vector<std::int64_t> request() const;
  [[nodiscard]] bool commit(const std::string& packet, std::int64_t server);

  WorkerEnd& end_;
  PoolResults& results_;
  const std::unique_ptr<char[]> buffer_;  // for a packet
  std::optional<Work> work_;              // The unit that it holds.
  std::uint64_t served_ = 0;
  std::int64_t start_ns_ = 0;
  // The position after the last unit of each stream.
  std::unordered_map<std::uint32_t, Position> positions_;
};

}  // namespace gristmill
