// The parent's object: publishes units, frees those of dead workers, and
// delivers outputs in order.
//
// next() waits for the commit of one unit and nothing else.  The cursor moves
// in advance(), after all Python objects of the output exist, so an exception
// or signal before that loses nothing.
//
// Thread safety: one consumer thread at a time calls next, advance, hold and
// reset; the supervisor thread calls the Crew's methods; anybody may call
// close and the readers of the state.  One private mutex, never held while
// waiting, nor while calling the Hirer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/memory/arena.hpp"
#include "core/schedule/crew.hpp"
#include "core/schedule/lease.hpp"
#include "core/schedule/next.hpp"
#include "core/schedule/order.hpp"
#include "core/base/status.hpp"

namespace gristmill {

struct SchedulerConfig {
  std::uint32_t workers = 1;
  std::uint32_t buffer = 1;  // units ahead: workers * (buffer + 2)
  UnitKind kind = UnitKind::kArithmetic;
  std::int64_t unit_records = 1;      // arithmetic: records in a unit
  std::uint32_t max_restarts = 1;     // of one unit
  std::uint64_t memory_limit = 0;     // bytes, 0: 80 % of the memory
  std::vector<std::int64_t> lengths;  // records of each stream, -1 unknown
  std::uint32_t vector_capacity = kSmallVector;  // integers in a position
  std::vector<Vector> starts;                    // position of each stream
  std::uint32_t turn = 0;
  std::vector<bool> ended;
  bool in_order = true;       // else outputs come as they are done
  bool deaths_final = false;  // no worker is hired in the place of a dead one
};

// A worker's process, as far as is known.
struct Process {
  int pid = 0;  // of the last one that was born, 0 before
  bool alive = false;
  std::optional<int> wait_status;  // of that one, as waitpid(2)
};

class Scheduler final : public Crew {
 public:
  static Result<std::unique_ptr<Scheduler>> create(SchedulerConfig config);
  // REQUIRES: the supervisor makes no more calls; workers may still live.
  ~Scheduler() override;

  // Asks for the workers.  Without a hirer, somebody else brings them.
  // REQUIRES: the hirer outlives the scheduler or dismisses it first.
  void start(Hirer* hirer);

  // What the stream's owner is to compute next, after all that was asked of it
  // before: 1 to vector_capacity integers, of which the core knows nothing.
  // REQUIRES: kind is kRequested.
  Status ask(std::uint32_t stream, Vector request);

  // The output due, once it is there; of requests kEnd says that nothing is
  // asked for.  Called again without advance() it returns the same output.  A
  // negative timeout waits for ever.
  [[nodiscard]] Next next(double timeout_s = -1.0);

  // The output that next() returned last is delivered.
  void advance();

  // One more view of the slot of the output that next() returned last, to be
  // ended by release_view(); nullptr after advance() or close().
  [[nodiscard]] Slot* hold();

  // Withdraws everything and goes on from another position.
  Status reset(const std::vector<Vector>& positions, std::uint32_t turn,
               const std::vector<bool>& ended);

  // Ends waits and tells workers to leave.  May be called again.
  void close();

  // Position of each stream, the stream due and which streams have ended.
  [[nodiscard]] std::vector<Vector> vectors();
  [[nodiscard]] std::uint32_t turn();
  [[nodiscard]] std::vector<bool> ended();
  [[nodiscard]] std::vector<Process> processes();
  [[nodiscard]] Region region() const noexcept { return region_; }
  [[nodiscard]] int arena_fd() const noexcept { return arena_->fd(); }

  // The slot of any scheduler of this process that the address lies in, or
  // nullptr.  REQUIRES: the caller keeps a view of what is there.
  [[nodiscard]] static Slot* slot_at(std::uintptr_t address);

  void born(int worker, std::uint32_t generation, int pid) override;
  void died(int worker, std::uint32_t generation) override;
  void how(int worker, std::uint32_t generation, int wait_status) override;
  void knocked() override;
  void failed(std::string why) override;

 private:
  friend class ForkGuard;
  struct Opened;
  struct Person;

  Scheduler(SchedulerConfig config, std::unique_ptr<Arena> arena);

  [[nodiscard]] bool arithmetic() const noexcept {
    return config_.kind == UnitKind::kArithmetic;
  }

  // All below REQUIRE the mutex.
  int due();
  [[nodiscard]] bool is_done(std::uint32_t stream) const;
  bool look(Next& next);
  bool open(std::uint32_t stream);
  void describe(const Opened& unit, Output& output) const;
  void retry_refused(const Stream& stream);
  void close_unit(std::uint32_t stream);
  void withdraw_stream(std::uint32_t stream);
  void fill();
  bool publish(std::uint32_t stream);
  bool shed();
  bool grant(std::uint64_t id);
  bool stuck(const Lease& due);
  void collect();
  Vector position_before(std::uint64_t prev, std::uint32_t stream);
  void free_units_of(int worker, std::uint32_t generation);
  void relink_streams_of(int worker, std::uint32_t generation);
  bool judge_start(int worker, std::uint32_t generation);
  void ring_work(std::size_t units);
  void ring_all();
  Shortage shortage(std::uint64_t need) const;
  Death death_of(int worker, std::uint32_t generation,
                 const Lease* lease) const;
  Death awaited_worker();
  void clear_units();

  const SchedulerConfig config_;
  const std::unique_ptr<Arena> arena_;
  const Region region_;
  Hirer* hirer_ = nullptr;  // Fixed by start().

  std::mutex mutex_;
  // Guarded by the mutex.
  LeaseTable leases_;
  Order order_;
  std::vector<Person> people_;
  std::vector<std::unique_ptr<Opened>> opened_;  // per stream, or null
  std::vector<std::pair<std::uint64_t, Death>> doomed_;
  std::optional<Death> fatal_;
  std::optional<Shortage> short_;
  std::uint64_t largest_ = 0;  // bytes used by a unit so far
  std::uint64_t awaited_ = 0;  // id of the unit due
  bool dirty_ = true;          // something may be published
  bool starved_ = false;       // a holder waits for memory
  bool crew_failed_ = false;   // the supervisor reports no more
  bool closed_ = false;
  bool forked_ = false;
};

}  // namespace gristmill
