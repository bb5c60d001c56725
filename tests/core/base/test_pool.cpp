#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "core/base/pool.hpp"
#include "core/check.hpp"

namespace gristmill {
namespace {

void test_wait_returns_after_all_tasks() {
  Pool pool(3);
  TaskGroup group;
  std::vector<int> done(1000);
  for (std::size_t i = 0; i < done.size(); ++i) {
    pool.run(group, [&done, i] { done[i] += 1; });
  }
  CHECK(group.wait());
  for (const int count : done) CHECK_EQ(count, 1);
}

void test_wait_for_returns_after_timeout() {
  Pool pool(1);
  TaskGroup gate;
  TaskGroup held;
  gate.expect(1);
  pool.run(held, [&gate] { CHECK(gate.wait()); });
  CHECK(!held.wait_for(std::chrono::milliseconds(1)).has_value());
  gate.done();
  while (!held.wait_for(std::chrono::milliseconds(100))) {
  }
  CHECK(held.wait_for(std::chrono::milliseconds(0)) == true);
}

// Adds a task to the pool when it is destroyed.
class Giver {
 public:
  Giver(Pool& pool, TaskGroup& group) : pool_(pool), group_(group) {
    group_.expect(1);
  }
  ~Giver() {
    pool_.run(group_, [] {});
    group_.done();
  }
  Giver(const Giver&) = delete;
  Giver& operator=(const Giver&) = delete;

 private:
  Pool& pool_;
  TaskGroup& group_;
};

void test_destructor_in_task_can_add_tasks() {
  Pool pool(1);
  TaskGroup tasks;
  TaskGroup given;
  auto giver = std::make_shared<Giver>(pool, given);
  pool.run(tasks, [giver] {});
  giver.reset();
  CHECK(tasks.wait());
  CHECK(given.wait());
}

void test_single_thread_runs_tasks_in_order() {
  Pool pool(1);
  TaskGroup group;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    pool.run(group, [&order, i] { order.push_back(i); });
  }
  CHECK(group.wait());
  for (int i = 0; i < 100; ++i) CHECK_EQ(order[static_cast<std::size_t>(i)], i);
}

void test_pool_destructor_finishes_tasks() {
  std::atomic<int> done{0};
  TaskGroup group;
  {
    Pool pool(2);
    for (int i = 0; i < 100; ++i) pool.run(group, [&done] { ++done; });
  }
  CHECK_EQ(done.load(), 100);
}

void test_group_waits_only_for_its_tasks() {
  Pool pool(2);
  TaskGroup held;
  TaskGroup gate;
  gate.expect(1);
  pool.run(held, [&gate] { CHECK(gate.wait()); });
  TaskGroup free;
  pool.run(free, [] {});
  CHECK(free.wait());
  gate.done();
  CHECK(held.wait());
}

// Runs `act` in a forked child.  Returns true if it returns true in time.
template <class Act>
bool in_a_child(const Act& act) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // A wait for missing threads would never end.
    _exit(act() ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void test_forked_child_runs_tasks_in_caller() {
  Pool pool(2);
  TaskGroup group;
  pool.run(group, [] {});
  CHECK(group.wait());
  CHECK(in_a_child([&] {
    int ran = 0;
    TaskGroup own;
    pool.run(own, [&ran] { ++ran; });
    return own.wait() && ran == 1;
  }));
}

void test_forked_child_can_destroy_pool() {
  auto pool = std::make_unique<Pool>(2);
  TaskGroup group;
  for (int i = 0; i < 4; ++i) pool->run(group, [] {});
  CHECK(group.wait());
  usleep(1000);  // The threads are probably asleep by now.
  CHECK(in_a_child([&] {
    pool = nullptr;
    return true;
  }));
}

void test_forked_child_wait_reports_lost_tasks() {
  Pool pool(1);
  TaskGroup gate;
  gate.expect(1);
  auto held = std::make_unique<TaskGroup>();
  pool.run(*held, [&gate] { CHECK(gate.wait()); });
  CHECK(in_a_child([&] {
    const bool lost = !held->wait();
    held = nullptr;
    return lost;
  }));
  gate.done();
  CHECK(held->wait());
}

// Not with sanitizers, since they need more memory than the limit.
[[maybe_unused]] void test_pool_works_if_threads_cannot_start() {
  // In a child, so that the limit does not affect other tests.
  CHECK(in_a_child([] {
    rlimit few{};
    getrlimit(RLIMIT_AS, &few);
    few.rlim_cur = rlim_t{64} << 20;  // At most eight stacks of 8 MiB.
    setrlimit(RLIMIT_AS, &few);
    std::atomic<int> done{0};
    Pool pool(1000);
    TaskGroup group;
    for (int i = 0; i < 1000; ++i) {
      pool.run(group, [&done] {
        usleep(100);
        ++done;
      });
    }
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    return group.wait() && done == 1000 && sigismember(&mask, SIGINT) == 0;
  }));
}

void test_group_destructor_waits_for_tasks() {
  Pool pool(2);
  int done = 0;
  {
    TaskGroup group;
    pool.run(group, [&done] {
      usleep(1000);
      done = 1;
    });
  }
  CHECK_EQ(done, 1);
}

}  // namespace
}  // namespace gristmill

int main() {
  gristmill::test_wait_returns_after_all_tasks();
  gristmill::test_wait_for_returns_after_timeout();
  gristmill::test_destructor_in_task_can_add_tasks();
  gristmill::test_single_thread_runs_tasks_in_order();
  gristmill::test_pool_destructor_finishes_tasks();
  gristmill::test_group_waits_only_for_its_tasks();
  gristmill::test_forked_child_runs_tasks_in_caller();
  gristmill::test_forked_child_can_destroy_pool();
  gristmill::test_forked_child_wait_reports_lost_tasks();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  gristmill::test_pool_works_if_threads_cannot_start();
#endif
  gristmill::test_group_destructor_waits_for_tasks();
}
