// The Supervisor starts worker processes for any number of crews, and tells
// each crew of births and deaths.
//
// Its thread is a child of nobody's code: all signals blocked, never in Python,
// asleep in epoll_wait without time-outs.  It starts one launcher process for
// each list of modules that crews want; a launcher imports them and forks one
// zygote per crew, which forks the crew's workers (spawn.hpp has the messages).
// A death of any of them is a readable pidfd:
//
//   worker     died() is called; the crew hires another if it wants one.
//   zygote     its workers die with it, each reported by its own pidfd; another
//              zygote is started and told of every hire that bore no worker
//              yet.
//   launcher   its zygotes die with it, as above.
//   this one   the kernel ends all of them, without code of ours.
//
// Promise to a crew: each hire() is followed by one born() and, when the worker
// is dead, one died(), in this order, until failed() or dismiss().  failed()
// comes once: when the program cannot be loaded, or when three zygotes in a row
// end before any worker was born.
//
// Fork: a child that the user's process forks has no supervisor thread.  Engine
// descriptors are closed there, Enlistments do nothing, and the first enlist()
// makes a supervisor of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/processes/spawn.hpp"
#include "core/schedule/crew.hpp"

namespace gristmill {

class Supervisor;

// What the workers of a crew get.  The descriptors are copied, not taken.
struct CrewSpec {
  int arena_fd = -1;
  int blob_fd = -1;
  std::string setup;  // A pickled dict; _launcher.py says of what.
  // What the zygote should find imported.  A crew that wants nothing takes any
  // launcher that is ready.
  Modules modules = {};
};

// A crew's place with the supervisor.
//
// Thread safety: any thread may call anything but dismiss() and the destructor,
// which nothing may overlap.
class Enlistment final : public Hirer {
 public:
  ~Enlistment() override;  // Dismisses.
  Enlistment(const Enlistment&) = delete;
  Enlistment& operator=(const Enlistment&) = delete;

  // Asks for a worker.  `generation` is the crew's own count.
  // REQUIRES: the pair is used once.
  void hire(int worker, uint32_t generation) override;

  // Kills every process that is or is about to be worker `worker`.
  void kill(int worker) override;

  // An eventfd that workers write to have knocked() called.  Valid until
  // dismiss(); closed in a forked child.
  [[nodiscard]] int knock_fd() const noexcept { return knock_fd_; }

  // Kills the crew's processes.  No callback runs after the return.  It does
  // not wait until the kernel has ended the processes.
  // REQUIRES: called on no callback, and without a lock that callbacks take.
  void dismiss();

 private:
  friend class Supervisor;
  Enlistment(Supervisor* supervisor, uint32_t id, int knock_fd)
      : supervisor_(supervisor), id_(id), knock_fd_(knock_fd) {}

  Supervisor* const supervisor_;
  const uint32_t id_;
  const int knock_fd_;
  bool dismissed_ = false;
};

// How the next launcher of this process is started.  Cheap: nothing starts
// before the first enlist().
void configure_supervisor(Command command);

// Starts the supervisor of this process and its launcher if there is none.
// Throws std::system_error for want of descriptors or threads, and
// std::logic_error before configure_supervisor().
// REQUIRES: `crew` lives until dismiss() returns; its methods do not throw.
[[nodiscard]] std::unique_ptr<Enlistment> enlist(Crew* crew,
                                                 const CrewSpec& spec);

// Dismisses every crew, ends the launcher and joins the supervisor thread; for
// use at exit, before anything that a Crew needs is gone.  A later enlist()
// starts again.
void shutdown_supervisor();

}  // namespace gristmill
