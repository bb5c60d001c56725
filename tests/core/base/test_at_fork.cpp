// The order of the steps around a fork.
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "core/base/at_fork.hpp"
#include "core/check.hpp"

using namespace gristmill;

namespace {

std::string happened;
Mutex mutex;

void close_in_child() { happened += "d"; }

// Registered in another order than that of the steps.
const bool kEntered =
    at_fork(ForkStep::kDescriptors, {.before = [] { happened += "3"; },
                                     .in_parent = [] { happened += "p"; },
                                     .in_child = [] { happened += "c"; }}) &&
    at_fork(ForkStep::kOpenFds, held_at_fork<mutex, close_in_child>()) &&
    at_fork(ForkStep::kSchedulers, {.before = [] { happened += "2"; }}) &&
    at_fork(ForkStep::kSupervisor, {.before = [] { happened += "1"; },
                                    .in_parent = [] { happened += "q"; },
                                    .in_child = [] { happened += "e"; }});

void test_steps_run_in_order_and_end_in_reverse() {
  CHECK(kEntered);
  const pid_t pid = fork();
  if (pid == 0) {
    const MutexLock lock(mutex);  // No thread holds it.
    _exit(happened == "123cde" ? 0 : 1);
  }
  int status = -1;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
  CHECK_EQ(happened, std::string("123pq"));
  const MutexLock lock(mutex);
}

}  // namespace

int main() { test_steps_run_in_order_and_end_in_reverse(); }
