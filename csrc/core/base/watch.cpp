#include "core/base/watch.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/at_fork.hpp"
#include "core/base/mutex.hpp"

namespace gristmill {
namespace {

using Clock = std::chrono::steady_clock;

// Time for which the thread waits for new watches before it exits.
constexpr std::chrono::milliseconds kLinger{50};

Watch::Duration read_clock(clockid_t clock) noexcept {
  timespec now{};
  if (clock_gettime(clock, &now) != 0) return {};
  return std::chrono::seconds(now.tv_sec) +
         std::chrono::nanoseconds(now.tv_nsec);
}

// Returns true if a thread of this process sleeps.  Returns false if it runs or
// waits for a processor.
bool is_asleep(pid_t thread) noexcept {
  std::array<char, 64> path{"/proc/self/task/"};
  char* const end = std::to_chars(path.data() + std::strlen(path.data()),
                                  path.data() + path.size() - 8, thread)
                        .ptr;
  std::memcpy(end, "/stat", sizeof("/stat"));
  const int fd = open(path.data(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::array<char, 128> text;
  const ssize_t read_bytes = read(fd, text.data(), text.size());
  close(fd);
  const std::string_view stat(
      text.data(), static_cast<std::size_t>(std::max<ssize_t>(read_bytes, 0)));
  // The state follows the thread name, which is in parentheses.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= stat.size()) {
    return false;
  }
  const char state = stat[name_end + 2];
  return state == 'S' || state == 'D';
}

}  // namespace

struct Watch::Entry {
  const Trigger trigger;
  const Callback callback;

  // Guarded by the mutex of Thread.
  std::uint64_t begin_count = 0;  // Calls of begin().
  Clock::time_point begin_time = {};
  Clock::time_point due = {};  // When the condition is checked next.

  // The watched thread and its CPU times at begin(); only for kWaiting.
  // begin() writes them without the mutex, before the entry is watched.
  pid_t thread = 0;
  clockid_t clock = 0;
  Duration thread_time{};
  Duration process_time{};

  void record_this_thread() noexcept {
    thread = gettid();
    pthread_getcpuclockid(pthread_self(), &clock);
    thread_time = read_clock(clock);
    process_time = read_clock(CLOCK_PROCESS_CPUTIME_ID);
  }

  // Returns true if the condition of the trigger holds.  `elapsed` is the time
  // since begin().
  [[nodiscard]] bool is_met(Duration elapsed) const noexcept {
    if (trigger == Trigger::kTime) return true;
    return 2 * (read_clock(clock) - thread_time) < elapsed &&
           2 * (read_clock(CLOCK_PROCESS_CPUTIME_ID) - process_time) <
               elapsed &&
           is_asleep(thread);
  }
};

// The thread that checks all watches.
class Watch::Thread {
 public:
  static void begin(const std::shared_ptr<Entry>& entry, Duration delay)
      EXCLUDES(mutex) {
    if (entry->trigger == Trigger::kWaiting) entry->record_this_thread();
    const MutexLock lock(mutex);
    State& state = Thread::state();
    ++entry->begin_count;
    entry->begin_time = Clock::now();
    entry->due = entry->begin_time + delay;
    if (std::ranges::find(state.watched, entry) == state.watched.end()) {
      state.watched.push_back(entry);
    }
    if (!state.is_running) start();
    if (entry->due < state.wake_time) state.changed.notify_one();
  }

  static void end(const std::shared_ptr<Entry>& entry) EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    std::erase(state().watched, entry);
  }

 private:
  struct State {
    std::vector<std::shared_ptr<Entry>> watched;
    bool is_running = false;
    Clock::time_point wake_time = {};  // When the thread wakes up next.
    Condition changed;
  };

  // An entry whose callback is due.  The other members are copies from that
  // time.
  struct Due {
    std::shared_ptr<Entry> entry;
    std::uint64_t begin_count = 0;
    Duration elapsed{};
  };

  static State& state() REQUIRES(mutex) { return *state_pointer(); }
  static State*& state_pointer() REQUIRES(mutex);

  // Does nothing if the system cannot start another thread.
  static void start() noexcept REQUIRES(mutex);
  static void run() EXCLUDES(mutex);
  // Waits for an entry to become due.  Returns no entry if the thread has
  // nothing to watch.
  static Due next_due() EXCLUDES(mutex);
  static void call_back(const Due& due) EXCLUDES(mutex);

  static std::shared_ptr<Entry> soonest() REQUIRES(mutex) {
    return *std::ranges::min_element(
        state().watched, {},
        [](const std::shared_ptr<Entry>& entry) { return entry->due; });
  }

  // Replaces the state in a child, which cannot use a condition variable that a
  // thread of the parent waits for.
  static void discard_state() NO_THREAD_SAFETY_ANALYSIS {
    state_pointer() = new State;
  }

  static Mutex mutex;
  static const bool kRegistered;
};

Mutex Watch::Thread::mutex;

// Leaked: the thread may outlive static objects.
Watch::Thread::State*& Watch::Thread::state_pointer() {
  static State* pointer = new State;
  return pointer;
}

void Watch::Thread::start() noexcept {
  // Block all signals: the threads of the user handle them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(run).detach();
    state().is_running = true;
  } catch (const std::exception&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Destroys `due` without the lock, because destroying a callback may need other
// locks.
void Watch::Thread::run() {
  for (;;) {
    const Due due = next_due();
    if (due.entry == nullptr) return;
    call_back(due);
  }
}

Watch::Thread::Due Watch::Thread::next_due() {
  const MutexLock lock(mutex);
  State& state = Thread::state();
  for (;;) {
    const bool idle = state.watched.empty();
    state.wake_time = idle ? Clock::now() + kLinger : soonest()->due;
    if (state.changed.wait_until(mutex, state.wake_time)) continue;
    if (state.watched.empty()) {
      if (!idle) continue;
      state.is_running = false;
      return {};
    }
    std::shared_ptr<Entry> entry = soonest();
    const Clock::time_point now = Clock::now();
    if (entry->due > now) continue;
    const Duration elapsed = now - entry->begin_time;
    if (entry->is_met(elapsed)) {
      const std::uint64_t begin_count = entry->begin_count;
      return {std::move(entry), begin_count, elapsed};
    }
    entry->due = now + elapsed;  // Check again after twice the time.
  }
}

void Watch::Thread::call_back(const Due& due) {
  Entry& entry = *due.entry;
  const std::optional<Duration> next_delay = entry.callback(due.elapsed);
  const MutexLock lock(mutex);
  if (entry.begin_count != due.begin_count) return;
  if (next_delay) {
    entry.due = Clock::now() + *next_delay;
  } else {
    std::erase(state().watched, due.entry);
  }
}

const bool Watch::Thread::kRegistered =
    at_fork(ForkStep::kWatches, held_at_fork<mutex, discard_state>());

Watch::Watch(Trigger trigger, Callback callback)
    : entry_(std::make_shared<Entry>(trigger, std::move(callback))) {}

Watch::~Watch() { end(); }

void Watch::begin(Duration delay) { Thread::begin(entry_, delay); }

void Watch::end() { Thread::end(entry_); }

}  // namespace gristmill
