#include "core/schedule/pool_lane.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/schedule/worker_counts.hpp"

namespace gristmill {
namespace {

// Same as in messages.py.
constexpr std::size_t kMaxPacketBytes = 64 << 10;
constexpr char kInFile = 'F';

// Sends a packet; returns false if that fails although the peer is there.  If
// it is gone, its last message may still wait.
bool send_packet(int socket, const void* data, std::size_t bytes) {
  for (;;) {
    if (send(socket, data, bytes, MSG_NOSIGNAL) >= 0) return true;
    if (errno == EPIPE || errno == ECONNRESET) return true;
    if (errno != EINTR) return false;
  }
}

// Returns the contents of a file, and closes it; empty if that fails.
std::string read_file(int fd) {
  struct stat about{};
  std::string contents;
  if (fstat(fd, &about) == 0) {
    contents.resize(static_cast<std::size_t>(about.st_size));
    std::size_t done = 0;
    while (done < contents.size()) {
      const ssize_t count =
          pread(fd, contents.data() + done, contents.size() - done,
                static_cast<off_t>(done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        contents.clear();
        break;
      }
      done += static_cast<std::size_t>(count);
    }
  }
  close(fd);
  return contents;
}

// Receives a packet in a buffer of kMaxPacketBytes, and returns it; it is empty
// if the peer is gone.
std::string receive_packet(int socket, char* buffer) {
  iovec part{buffer, kMaxPacketBytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ssize_t count = 0;
  do {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return {};  // `control` is not set.
  std::string packet(buffer, static_cast<std::size_t>(count));
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    // Without a free descriptor, the file of a large packet is lost.
    if (packet.size() == 1 && packet[0] == kInFile) packet.clear();
    return packet;
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return read_file(fd);
}

}  // namespace

PoolLane::PoolLane(WorkerEnd& end, PoolResults& results)
    : end_(end), results_(results), buffer_(new char[kMaxPacketBytes]) {}

PoolEvent PoolLane::serve(int socket, std::int64_t server, bool sends) {
  for (;;) {
    if (!work_) {
      work_ = end_.claim();
      if (!work_) return {};
      start_ns_ = monotonic_ns();
      sends = true;
    }
    if (sends) {
      const std::vector<std::int64_t> words = request();
      const std::size_t bytes = words.size() * sizeof(std::int64_t);
      if (work_->kind == UnitKind::kRequest || bytes > kMaxPacketBytes) {
        const auto* const data = reinterpret_cast<const char*>(words.data());
        return {PoolEvent::Kind::kRequest, std::string(data, bytes)};
      }
      if (!send_packet(socket, words.data(), bytes)) {
        return {PoolEvent::Kind::kPacket};
      }
    }
    std::string packet = receive_packet(socket, buffer_.get());
    if (!commit(packet, server)) {
      return {PoolEvent::Kind::kPacket, std::move(packet)};
    }
    work_.reset();
    ++served_;
  }
}

std::vector<std::int64_t> PoolLane::request() const {
  const Work& work = *work_;
  const bool is_request = work.kind == UnitKind::kRequest;
  const bool is_sequential = work.kind == UnitKind::kSequential;
  std::vector<std::int64_t> words{
      work.stream,  is_sequential,
      work.first,   work.count,
      work.attempt, is_request ? static_cast<std::int64_t>(work.id) : -1};
  if (is_request || is_sequential) {
    const auto known = positions_.find(work.stream);
    const bool continues =
        is_sequential && work.continues_stream && known != positions_.end();
    const Position& before = continues ? known->second : work.position_before;
    words.insert(words.end(), before.begin(), before.end());
  }
  return words;
}

// Commits the held unit; returns false if the packet is not its result.
bool PoolLane::commit(const std::string& packet, std::int64_t server) {
  ResultHeader header{};
  if (packet.size() < sizeof(header)) return false;
  std::memcpy(&header, packet.data(), sizeof(header));
  if (header.kind != kPoolResult) return false;
  const auto slot_bytes = static_cast<std::size_t>(header.slot_bytes);
  const auto integers = static_cast<std::size_t>(header.position_integers);
  const std::size_t room = packet.size() - sizeof(header);
  if (integers == 0 || integers > end_.position_capacity() ||
      slot_bytes > room ||
      integers * sizeof(std::int64_t) > room - slot_bytes) {
    return false;
  }
  const char* rest = packet.data() + sizeof(header);
  Position position(integers);
  std::memcpy(position.data(), rest, position.size() * sizeof(std::int64_t));
  rest += position.size() * sizeof(std::int64_t);
  const char* const details = rest + slot_bytes;
  Work& work = *work_;
  results_.add({work.stream, work.id, server, start_ns_, monotonic_ns(),
                std::string(details, packet.data() + packet.size())});
  if (slot_bytes > work.capacity && !end_.request_larger_slot(work, slot_bytes))
    return true;  // The unit was withdrawn, or memory ran out.
  std::memcpy(work.slot, rest, slot_bytes);
  const auto status = static_cast<UnitStatus>(header.status);
  end_.commit(work, status, static_cast<std::uint32_t>(header.outputs),
              slot_bytes, position);
  positions_[work.stream] = std::move(position);
  return true;
}

}  // namespace gristmill
