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

void every_task_runs_before_wait_returns() {
  Pool pool(3);
  TaskGroup group;
  std::vector<int> done(1000);
  for (std::size_t i = 0; i < done.size(); ++i) {
    pool.run(group, [&done, i] { done[i] += 1; });
  }
  CHECK(group.wait());
  for (const int count : done) CHECK_EQ(count, 1);
}

void a_wait_may_be_short() {
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

// Gives a task when it ends.
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

void what_a_task_owns_may_give_tasks_when_it_ends() {
  Pool pool(1);
  TaskGroup tasks;
  TaskGroup given;
  auto giver = std::make_shared<Giver>(pool, given);
  pool.run(tasks, [giver] {});
  giver.reset();
  CHECK(tasks.wait());
  CHECK(given.wait());
}

void one_thread_runs_tasks_in_order() {
  Pool pool(1);
  TaskGroup group;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    pool.run(group, [&order, i] { order.push_back(i); });
  }
  CHECK(group.wait());
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
  pool.run(held, [&gate] { CHECK(gate.wait()); });
  TaskGroup free;
  pool.run(free, [] {});
  CHECK(free.wait());
  gate.done();
  CHECK(held.wait());
}

// Runs `act` in a forked child; returns whether it ends well and soon.
template <class Act>
bool in_a_child(const Act& act) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // A wait for threads that are not there would last for ever.
    _exit(act() ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void a_forked_child_runs_tasks_itself() {
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

void a_forked_child_can_end_the_pool() {
  auto pool = std::make_unique<Pool>(2);
  TaskGroup group;
  for (int i = 0; i < 4; ++i) pool->run(group, [] {});
  CHECK(group.wait());
  usleep(1000);  // The threads are asleep by now, or the test proves less.
  CHECK(in_a_child([&] {
    pool = nullptr;
    return true;
  }));
}

void a_forked_child_learns_that_tasks_are_lost() {
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

// Not under sanitizers, which need more than the limit for themselves.
[[maybe_unused]] void threads_that_cannot_start_are_done_without() {
  // In a child, since the limit counts all processes of the user.
  CHECK(in_a_child([] {
    rlimit few{};
    getrlimit(RLIMIT_AS, &few);
    few.rlim_cur = rlim_t{64} << 20;  // Eight stacks of 8 MiB, at most.
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

void the_group_waits_for_its_tasks_before_it_ends() {
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
  gristmill::every_task_runs_before_wait_returns();
  gristmill::a_wait_may_be_short();
  gristmill::what_a_task_owns_may_give_tasks_when_it_ends();
  gristmill::one_thread_runs_tasks_in_order();
  gristmill::the_destructor_finishes_what_was_given();
  gristmill::a_group_waits_for_its_own_tasks_only();
  gristmill::a_forked_child_runs_tasks_itself();
  gristmill::a_forked_child_can_end_the_pool();
  gristmill::a_forked_child_learns_that_tasks_are_lost();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  gristmill::threads_that_cannot_start_are_done_without();
#endif
  gristmill::the_group_waits_for_its_tasks_before_it_ends();
}
