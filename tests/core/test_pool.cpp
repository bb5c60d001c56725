#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "check.hpp"
#include "core/pool.hpp"

namespace gristmill {
namespace {

void every_task_runs_before_wait_returns() {
  Pool pool(3);
  TaskGroup group;
  std::vector<int> done(1000);
  for (std::size_t i = 0; i < done.size(); ++i) {
    pool.run(group, [&done, i] { done[i] += 1; });
  }
  group.wait();
  for (const int count : done) CHECK_EQ(count, 1);
}

void one_thread_runs_tasks_in_order() {
  Pool pool(1);
  TaskGroup group;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    pool.run(group, [&order, i] { order.push_back(i); });
  }
  group.wait();
  for (int i = 0; i < 100; ++i) CHECK_EQ(order[static_cast<std::size_t>(i)], i);
}

void the_destructor_finishes_what_was_given() {
  std::atomic<int> done{0};
  TaskGroup group;
  {
    Pool pool(2);
    for (int i = 0; i < 100; ++i) pool.run(group, [&done] { ++done; });
  }
  CHECK_EQ(done.load(), 100);
}

void a_group_waits_for_its_own_tasks_only() {
  Pool pool(2);
  TaskGroup held;
  TaskGroup gate;
  gate.expect(1);
  pool.run(held, [&gate] { gate.wait(); });
  TaskGroup free;
  pool.run(free, [] {});
  free.wait();
  gate.done();
  held.wait();
}

void a_forked_child_runs_tasks_itself() {
  Pool pool(2);
  TaskGroup group;
  pool.run(group, [] {});
  group.wait();
  const pid_t child = fork();
  if (child == 0) {
    int ran = 0;
    {
      Pool& inherited = pool;
      TaskGroup own;
      inherited.run(own, [&ran] { ++ran; });
      own.wait();
    }
    _exit(ran == 1 ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace gristmill

int main() {
  gristmill::every_task_runs_before_wait_returns();
  gristmill::one_thread_runs_tasks_in_order();
  gristmill::the_destructor_finishes_what_was_given();
  gristmill::a_group_waits_for_its_own_tasks_only();
  gristmill::a_forked_child_runs_tasks_itself();
}
