// A lane that exchanges packets with this test, which takes the place of a
// pool's server.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "core/schedule/pool_lane.hpp"
#include "core/schedule/scheduler.hpp"
#include "core/schedule/worker_threads.hpp"

using namespace gristmill;
using namespace gristmill::testing;

namespace {

constexpr std::int64_t kServer = 77;

// A scheduler, and both ends of the connection of its only lane.
struct Connected {
  explicit Connected(UnitKind kind)
      : scheduler(make(config_of(kind))),
        end(scheduler->region(), notify_fd, 0, 1),
        lane(end, results) {
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
    scheduler->start(nullptr);
    scheduler->on_started(0, 1, getpid());
  }
  static SchedulerConfig config_of(UnitKind kind) {
    SchedulerConfig made = config(kind, 1, 1, 100, 4);
    made.position_capacity = 1000;
    return made;
  }
  ~Connected() {
    close(sockets[0]);
    close(sockets[1]);
    close(notify_fd);
  }

  // Runs the lane until an event, in a thread.
  void serve(bool sends = true) {
    thread = std::thread(
        [this, sends] { event = lane.serve(sockets[0], kServer, sends); });
  }

  // Returns the next request.
  std::vector<std::int64_t> request() const {
    std::vector<std::int64_t> words(100);
    const ssize_t bytes = recv(sockets[1], words.data(), 800, 0);
    CHECK(bytes > 0);
    words.resize(static_cast<std::size_t>(bytes) / 8);
    return words;
  }

  void reply(const std::string& packet) const {
    CHECK(send(sockets[1], packet.data(), packet.size(), 0) > 0);
  }

  // Sends a packet in a file.
  void reply_in_file(const std::string& packet) const {
    const int file = memfd_create("result", MFD_CLOEXEC);
    CHECK(write(file, packet.data(), packet.size()) ==
          static_cast<ssize_t>(packet.size()));
    char kind = 'F';
    iovec part{&kind, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof(file));
    CHECK(sendmsg(sockets[1], &message, 0) == 1);
    close(file);
  }

  int notify_fd = eventfd(0, EFD_CLOEXEC);
  int sockets[2] = {-1, -1};
  std::unique_ptr<Scheduler> scheduler;
  PoolResults results;
  WorkerEnd end;
  PoolLane lane;
  std::thread thread;
  PoolEvent event;
};

// Returns the packet of a unit with one output of `repeat` integers.
std::string result(std::int64_t output, const Position& after,
                   std::size_t repeat = 1) {
  const auto slot = pack(0, {output}, {after}, repeat, false);
  const ResultHeader header{kPoolResult, 0, 1,
                            static_cast<std::int64_t>(after.size()),
                            static_cast<std::int64_t>(slot.size())};
  std::string packet(reinterpret_cast<const char*>(&header), sizeof(header));
  packet.append(reinterpret_cast<const char*>(after.data()), 8 * after.size());
  packet.append(reinterpret_cast<const char*>(slot.data()), slot.size());
  return packet + "details";
}

void check_output(Scheduler& scheduler, std::int64_t output,
                  std::size_t repeat = 1) {
  const NextResult due = scheduler.next(30);
  CHECK(due.kind == NextKind::kOutput);
  const Seen expected{0, value_of(0, output, 0), false};
  CHECK(read_output(due.output, repeat) == expected);
  scheduler.advance();
}

void test_range_is_requested_and_committed() {
  Connected made(UnitKind::kRange);
  made.serve();
  CHECK(made.request() == std::vector<std::int64_t>({0, 0, 0, 4, 0, -1}));
  made.reply(result(5, {4}));
  check_output(*made.scheduler, 5);
  CHECK(made.request() == std::vector<std::int64_t>({0, 0, 4, 4, 0, -1}));
  const auto results = made.results.take();
  CHECK_EQ(results.size(), 1U);
  CHECK_EQ(results[0].server, kServer);
  CHECK_EQ(results[0].details, "details");
  CHECK(results[0].arrival_ns >= results[0].start_ns);
  CHECK_EQ(made.lane.served(), 1U);
  made.scheduler->close();
  shutdown(made.sockets[1], SHUT_RDWR);
  made.thread.join();
  CHECK(made.event.kind == PoolEvent::Kind::kPacket);
  CHECK_EQ(made.event.packet, "");
}

void test_sequential_unit_begins_at_the_position_after_the_last() {
  Connected made(UnitKind::kSequential);
  made.serve();
  CHECK(made.request() == std::vector<std::int64_t>({0, 1, 0, 4, 0, -1, 0, 0}));
  made.reply(result(5, {8, 9}));
  const auto words = made.request();
  CHECK(Position(words.end() - 2, words.end()) == Position({8, 9}));
  made.scheduler->close();
  made.reply(result(6, {9, 9}));
  made.thread.join();
  CHECK(made.event.kind == PoolEvent::Kind::kStop);
}

void test_unit_is_held_after_another_packet() {
  Connected made(UnitKind::kRange);
  made.serve();
  const auto words = made.request();
  made.reply("other");
  made.thread.join();
  CHECK(made.event.kind == PoolEvent::Kind::kPacket);
  CHECK_EQ(made.event.packet, "other");
  made.serve(true);
  CHECK(made.request() == words);
  made.reply("other");
  made.thread.join();
  made.serve(false);
  made.reply(result(5, {4}));
  check_output(*made.scheduler, 5);
  made.scheduler->close();
  shutdown(made.sockets[1], SHUT_RDWR);
  made.thread.join();
}

void test_large_result_is_read_from_a_file() {
  constexpr std::size_t repeat = 1 << 18;  // Larger than the first slot.
  Connected made(UnitKind::kRange);
  std::thread supervisor([&made] {
    std::uint64_t count = 0;
    CHECK(read(made.notify_fd, &count, 8) == 8);
    made.scheduler->on_worker_notified();
  });
  made.serve();
  CHECK(!made.request().empty());
  made.reply_in_file(result(5, {4}, repeat));
  check_output(*made.scheduler, 5, repeat);
  supervisor.join();
  made.scheduler->close();
  shutdown(made.sockets[1], SHUT_RDWR);
  made.thread.join();
}

// Its fields can be too large for the packet, or negative.
void test_damaged_result_is_not_committed() {
  Connected made(UnitKind::kRange);
  made.serve();
  CHECK(!made.request().empty());
  const std::string good = result(5, {4});
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{1} << 61,
                                   std::int64_t{10'000}, std::int64_t{0}}) {
    for (const std::size_t word : {3U, 4U}) {  // The two sizes.
      if (word == 4 && wrong == 0) continue;   // A slot can be empty.
      std::string packet = good;
      std::memcpy(packet.data() + 8 * word, &wrong, 8);
      made.reply(packet);
      made.thread.join();
      CHECK(made.event.kind == PoolEvent::Kind::kPacket);
      CHECK_EQ(made.event.packet, packet);
      made.serve(false);
    }
  }
  CHECK(made.results.take().empty());
  made.reply(good);
  check_output(*made.scheduler, 5);
  made.scheduler->close();
  shutdown(made.sockets[1], SHUT_RDWR);
  made.thread.join();
}

// A server that ends with an unread request resets the connection.
void test_reset_connection_closes_no_descriptor() {
  Connected made(UnitKind::kRange);
  made.serve();
  CHECK(!made.request().empty());
  made.reply_in_file(result(5, {4}));
  check_output(*made.scheduler, 5);
  pollfd requested{made.sockets[1], POLLIN, 0};
  CHECK(poll(&requested, 1, -1) == 1);
  // One of them has the number of the file that the lane has read and closed.
  const int others[] = {open("/dev/null", O_RDONLY),
                        open("/dev/null", O_RDONLY)};
  close(made.sockets[1]);
  made.thread.join();
  CHECK_EQ(made.event.packet, "");
  for (const int other : others) CHECK(close(other) == 0);
  made.sockets[1] = -1;
  made.scheduler->close();
}

void test_request_that_cannot_be_sent_counts_as_loss_of_the_server() {
  Connected made(UnitKind::kSequential);
  made.serve();
  CHECK(!made.request().empty());
  const int bytes =
      1;  // The system makes it larger, but less than the request.
  CHECK(setsockopt(made.sockets[0], SOL_SOCKET, SO_SNDBUF, &bytes,
                   sizeof(bytes)) == 0);
  made.reply(result(5, Position(1000)));
  made.thread.join();
  CHECK(made.event.kind == PoolEvent::Kind::kPacket);
  CHECK_EQ(made.event.packet, "");
  made.scheduler->close();
}

void test_caller_sends_requests_of_kind_request() {
  Connected made(UnitKind::kRequest);
  CHECK(made.scheduler->add_request(0, {42}).ok());
  made.serve();
  made.thread.join();
  CHECK(made.event.kind == PoolEvent::Kind::kRequest);
  std::vector<std::int64_t> words(made.event.packet.size() / 8);
  std::memcpy(words.data(), made.event.packet.data(), words.size() * 8);
  CHECK_EQ(words.size(), 7U);
  CHECK_EQ(words.back(), 42);
  CHECK(words[5] > 0);
  made.serve(false);
  made.reply(result(5, {1}));
  check_output(*made.scheduler, 5);
  made.scheduler->close();
  made.thread.join();
}

}  // namespace

int main() {
  test_range_is_requested_and_committed();
  test_sequential_unit_begins_at_the_position_after_the_last();
  test_unit_is_held_after_another_packet();
  test_large_result_is_read_from_a_file();
  test_damaged_result_is_not_committed();
  test_reset_connection_closes_no_descriptor();
  test_request_that_cannot_be_sent_counts_as_loss_of_the_server();
  test_caller_sends_requests_of_kind_request();
}
