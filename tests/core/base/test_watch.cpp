// A Watch calls back if something takes too long.
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

// Computes until this thread has used `time` of CPU time.
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

void test_watch_calls_back_until_nullopt() {
  std::promise<void> third;
  int calls = 0;
  Duration passed{};
  Watch watch(Watch::Trigger::kTime,
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

void test_ended_watch_does_not_call() {
  std::atomic<int> calls = 0;
  Watch ended(Watch::Trigger::kTime, [&](Duration) {
    ++calls;
    return std::nullopt;
  });
  ended.begin(1h);
  ended.begin(2ms);
  ended.end();
  std::promise<void> later;
  Watch other(Watch::Trigger::kTime, [&](Duration) {
    later.set_value();
    return std::nullopt;
  });
  other.begin(4ms);
  later.get_future().wait();
  CHECK_EQ(calls.load(), 0);
}

void test_waiting_thread_is_detected() {
  std::promise<void> noticed;
  Watch watch(Watch::Trigger::kWaiting, [&](Duration) {
    noticed.set_value();
    return std::nullopt;
  });
  watch.begin(1ms);
  noticed.get_future().wait();
}

void test_computing_thread_does_not_count_as_waiting() {
  std::atomic<int> calls = 0;
  Watch watch(Watch::Trigger::kWaiting, [&](Duration) {
    ++calls;
    return std::nullopt;
  });
  watch.begin(1ms);
  compute(30ms);
  watch.end();
  CHECK_EQ(calls.load(), 0);
}

void test_callback_can_destroy_watch() {
  std::promise<void> freed;
  std::unique_ptr<Watch> watch;
  watch = std::make_unique<Watch>(Watch::Trigger::kTime, [&](Duration) {
    watch.reset();
    freed.set_value();
    return 1ms;
  });
  watch->begin(1ms);
  freed.get_future().wait();
}

void test_forked_child_starts_own_thread() {
  Watch parents(Watch::Trigger::kTime, [](Duration) { return std::nullopt; });
  parents.begin(1h);
  const pid_t pid = fork();
  if (pid == 0) {
    std::promise<void> called;
    Watch watch(Watch::Trigger::kTime, [&](Duration) {
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
  test_watch_calls_back_until_nullopt();
  test_ended_watch_does_not_call();
  test_waiting_thread_is_detected();
  test_computing_thread_does_not_count_as_waiting();
  test_callback_can_destroy_watch();
  test_forked_child_starts_own_thread();
}
