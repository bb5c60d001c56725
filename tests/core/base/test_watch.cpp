// What calls back while something takes long.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>

#include "core/base/watch.hpp"
#include "core/check.hpp"

using namespace gristmill;
using namespace std::chrono_literals;

namespace {

using Duration = Watch::Duration;

// Computes for so much time of this thread's processor.
void compute(Duration time) {
  const auto now = [] {
    timespec spec{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spec);
    return std::chrono::seconds(spec.tv_sec) +
           std::chrono::nanoseconds(spec.tv_nsec);
  };
  const auto end = now() + time;
  while (now() < end) {
  }
}

void a_watch_calls_back_until_it_is_told_not_to() {
  std::promise<void> third;
  int calls = 0;
  Duration passed{};
  Watch watch(Watch::What::kTime,
              [&](Duration since) -> std::optional<Duration> {
                CHECK(since >= passed + 1ms);
                passed = since;
                if (++calls < 3) return 1ms;
                third.set_value();
                return std::nullopt;
              });
  watch.begin(1ms);
  third.get_future().wait();
  CHECK_EQ(calls, 3);
}

void a_watch_that_has_ended_does_not_call() {
  std::atomic<int> calls = 0;
  Watch ended(Watch::What::kTime, [&](Duration) {
    ++calls;
    return std::nullopt;
  });
  ended.begin(1h);
  ended.begin(2ms);
  ended.end();
  std::promise<void> later;
  Watch other(Watch::What::kTime, [&](Duration) {
    later.set_value();
    return std::nullopt;
  });
  other.begin(4ms);
  later.get_future().wait();
  CHECK_EQ(calls.load(), 0);
}

void a_thread_that_waits_is_noticed() {
  std::promise<void> noticed;
  Watch watch(Watch::What::kWaiting, [&](Duration) {
    noticed.set_value();
    return std::nullopt;
  });
  watch.begin(1ms);
  noticed.get_future().wait();
}

void a_thread_that_computes_does_not_wait() {
  std::atomic<int> calls = 0;
  Watch watch(Watch::What::kWaiting, [&](Duration) {
    ++calls;
    return std::nullopt;
  });
  watch.begin(1ms);
  compute(30ms);
  watch.end();
  CHECK_EQ(calls.load(), 0);
}

void a_callback_may_free_the_watch() {
  std::promise<void> freed;
  std::unique_ptr<Watch> watch;
  watch = std::make_unique<Watch>(Watch::What::kTime, [&](Duration) {
    watch.reset();
    freed.set_value();
    return 1ms;
  });
  watch->begin(1ms);
  freed.get_future().wait();
}

void a_child_watches_by_a_thread_of_its_own() {
  Watch parents(Watch::What::kTime, [](Duration) { return std::nullopt; });
  parents.begin(1h);
  const pid_t pid = fork();
  if (pid == 0) {
    std::promise<void> called;
    Watch watch(Watch::What::kTime, [&](Duration) {
      called.set_value();
      return std::nullopt;
    });
    watch.begin(1ms);
    called.get_future().wait();
    _exit(0);
  }
  int status = -1;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
}

}  // namespace

int main() {
  a_watch_calls_back_until_it_is_told_not_to();
  a_watch_that_has_ended_does_not_call();
  a_thread_that_waits_is_noticed();
  a_thread_that_computes_does_not_wait();
  a_callback_may_free_the_watch();
  a_child_watches_by_a_thread_of_its_own();
}
