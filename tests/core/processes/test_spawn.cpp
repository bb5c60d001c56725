// Tests core/processes/spawn.hpp: descriptors and fork, messages, the start of
// a command.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/check.hpp"
#include "core/processes/spawn.hpp"

namespace {

using namespace gristmill;

bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }

void test_forked_child_closes_descriptors() {
  Fd kept = new_eventfd();
  const pid_t child = fork();
  if (child == 0) {
    if (is_open(kept.get())) _exit(1);
    // The number is reused, so its old owner must not close it.
    const int reused = open("/dev/null", O_RDONLY);
    if (reused != kept.get()) _exit(2);
    kept = Fd();
    if (!is_open(reused)) _exit(3);
    _exit(0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK(is_open(kept.get()));
}

void test_message_carries_descriptors() {
  auto [near, far] = new_socket_pair();
  Channel sender(std::move(near));
  Channel receiver(std::move(far));
  Message message;
  message.kind = Message::kStarted;
  message.worker = 7;
  message.generation = 8;
  message.value = -9;
  sender.push(message, {Channel::share(memfd_of("first")),
                        Channel::share(memfd_of("second"))});
  CHECK_EQ(sender.flush(), 0);
  const auto packet = receiver.receive();
  CHECK(packet.has_value());
  CHECK_EQ(std::memcmp(&packet->message, &message, sizeof message), 0);
  CHECK_EQ(packet->fds.size(), 2u);
  CHECK_EQ(text_of(packet->fds[0].get()), "first");
  CHECK_EQ(text_of(packet->fds[1].get()), "second");
}

void test_full_socket_queues_messages_in_order() {
  auto [near, far] = new_socket_pair();
  Channel sender(std::move(near));
  Channel receiver(std::move(far));
  constexpr int kMessages = 5000;
  for (int i = 0; i < kMessages; ++i) {
    Message message;
    message.value = i;
    sender.push(message);
    CHECK_EQ(sender.flush(), 0);
  }
  for (int i = 0; i < kMessages; ++i) {
    if (i % 100 == 0) CHECK_EQ(sender.flush(), 0);
    CHECK_EQ(receiver.receive()->message.value, i);
  }
}

void test_closed_peer_is_not_an_error() {
  auto [near, far] = new_socket_pair();
  far = Fd();
  Channel sender(std::move(near));
  sender.push(Message());
  CHECK_EQ(sender.flush(), 0);
  CHECK(!sender.receive().has_value());
}

void test_eventfd_is_signaled_until_drained() {
  const Fd bell = new_eventfd();
  CHECK(!drain_eventfd(bell.get()));
  signal_eventfd(bell.get());
  signal_eventfd(bell.get());
  CHECK(drain_eventfd(bell.get()));
  CHECK(!drain_eventfd(bell.get()));
}

void test_wait_status_description() {
  CHECK_EQ(describe_wait_status(3 << 8), "exit code 3");
  CHECK_EQ(describe_wait_status(SIGKILL), "killed by signal 9 (Killed)");
}

// Runs this program again as the child below.  The child sends one message with
// its number of descriptors other than 0 to 3, and whether its signals are as
// documented.
void test_command_inherits_only_its_descriptors() {
  signal(SIGPIPE, SIG_IGN);
  const int stray = open("/dev/null", O_RDONLY);  // Not closed by exec.
  auto [near, far] = new_socket_pair();
  const Fd child =
      run({{"/proc/self/exe", "child"}, {"PLACE=here"}}, far.get());
  far = Fd();
  pollfd both{child.get(), POLLIN, 0};
  CHECK_EQ(poll(&both, 1, 10'000), 1);
  reap(child.get());
  Channel channel(std::move(near));
  const auto packet = channel.receive();
  CHECK(packet.has_value());
  CHECK_EQ(packet->message.kind, 0u);
  CHECK_EQ(packet->message.value, getpid());
  close(stray);
}

void test_missing_command_throws() {
  auto [near, far] = new_socket_pair();
  try {
    const Fd child = run({{"/no/such/program"}, {}}, far.get());
    CHECK(false);
  } catch (const std::system_error& error) {
    CHECK_EQ(error.code().value(), ENOENT);
  }
}

int be_child(char** arguments) {
  const int socket = std::atoi(arguments[2]);
  Message report;
  report.value = std::atoi(arguments[3]);
  for (int fd = 4; fd < 1024; ++fd) report.kind += is_open(fd) ? 1 : 0;
  struct sigaction action;
  sigaction(SIGPIPE, nullptr, &action);
  if (action.sa_handler != SIG_DFL) report.kind += 10'000;
  if (std::string(getenv("PLACE")) != "here") report.kind += 20'000;
  die_with_parent(report.value);
  Channel channel{Fd(socket)};
  channel.push(report);
  return channel.flush();
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 4 && std::string(arguments[1]) == "child") {
    return be_child(arguments);
  }
  test_forked_child_closes_descriptors();
  test_message_carries_descriptors();
  test_full_socket_queues_messages_in_order();
  test_closed_peer_is_not_an_error();
  test_eventfd_is_signaled_until_drained();
  test_wait_status_description();
  test_command_inherits_only_its_descriptors();
  test_missing_command_throws();
}
