// A Watch calls back, from a thread of its own, while something goes on for
// longer than expected.
//
// All watches share one thread.  It runs as long as something is watched, and a
// moment longer.
//
// Thread safety: one thread at a time calls begin() and end().  The callback
// may overlap with them, even with later calls: it has to synchronize.
//
// Fork: a child does not have the thread; begin() starts another.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace gristmill {

class Watch {
 public:
  using Duration = std::chrono::nanoseconds;
  // Takes the time since begin(), and returns the time until it is to be called
  // again, if it is.
  using Callback = std::function<std::optional<Duration>(Duration)>;

  // The condition for a callback.
  enum class What {
    kTime,  // the time has passed
    // the thread that called begin() waits for most of the time, and nothing in
    // this process computes meanwhile
    kWaiting,
  };

  Watch(What what, Callback callback);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Watches this thread from now on; the first look is after `delay`.
  void begin(Duration delay);

  // Ends that: no further callback begins.
  void end();

 private:
  class Thread;
  struct Entry;

  const std::shared_ptr<Entry> entry_;
};

}  // namespace gristmill
