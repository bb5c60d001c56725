// A Watch calls a callback in another thread if an operation takes longer than
// expected.
//
// All watches share one thread.  It exits shortly after the last watch ends.
//
// Thread safety: one thread at a time calls begin() and end().  The callback
// may overlap them, even later calls, so it must synchronize.
//
// Fork: a child does not have the thread; begin() starts a new one.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace gristmill {

class Watch {
 public:
  using Duration = std::chrono::nanoseconds;
  // Receives the time since begin().  Returns the time until the next callback,
  // or nothing to stop.
  using Callback = std::function<std::optional<Duration>(Duration)>;

  // The condition for a callback.
  enum class Trigger {
    kTime,  // the time has passed
    // the thread that called begin() waits most of the time, and no other
    // thread of this process computes
    kWaiting,
  };

  Watch(Trigger trigger, Callback callback);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Watches this thread from now on.  The first check happens after `delay`.
  void begin(Duration delay);

  // Stops watching: no further callback starts.
  void end();

 private:
  class Thread;
  struct Entry;

  const std::shared_ptr<Entry> entry_;
};

}  // namespace gristmill
