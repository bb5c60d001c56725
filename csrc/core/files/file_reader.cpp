#include "core/files/file_reader.hpp"

#include <algorithm>

namespace gristmill {
namespace {

// A thread keeps at most this much memory between reads.
constexpr std::size_t kMaxSpareBytes = std::size_t{4} << 20;

// A mapped range of more than some pages is asked for before it is touched.
constexpr std::uint64_t kWillNeedBytes = 4 * 4096;

ByteBuffer& run_buffer() {
  thread_local ByteBuffer buffer;
  return buffer;
}

}  // namespace

Status name_file(const File& file, const Status& status) {
  if (status.ok() || status.is_external()) return status;
  const std::string changed = file.change();
  const bool said = status.message().find(changed) != std::string::npos;
  return Status(status.code(), file.path() + ": " + status.message() +
                                   (said ? "" : "; " + changed));
}

// What lies near together is had by one read; that goes on for as long as one
// read may be, so that several make the best of many neighbours.
bool FileReader::shares_work(std::int64_t left, std::int64_t right) const {
  const File::Hints& hints = file_->hints();
  if (hints.parallel == 1) return false;
  const Extent here = extent(left);
  const Extent there = extent(right);
  return here.begin / hints.run_bytes == there.begin / hints.run_bytes &&
         there.begin <= here.end + hints.gap_bytes;
}

Status FileReader::check_mapped() const {
  if (file_->mapped().empty() || !file_->shrunk()) return {};
  return Status(Code::kInvalidArgument, path() + ": " + file_->change());
}

Status FileReader::explain(const Status& status, std::int64_t record) const {
  if (status.code() == Code::kRaised) {
    return Status::raised(status.cause(), path() + ": " + describe(record));
  }
  if (status.ok() || status.is_external()) return status;
  return name_file(*file_, Status(status.code(),
                                  describe(record) + ": " + status.message()));
}

Result<RawBytes> FileReader::fetch(const Extent& extent,
                                   ByteBuffer& buffer) const {
  const std::uint64_t size = extent.end - extent.begin;
  const auto mapped = file_->mapped();
  if (!mapped.empty()) {
    if (size > kWillNeedBytes) file_->will_need(extent.begin, size);
    return RawBytes{extent.begin, mapped.subspan(extent.begin, size)};
  }
  if (!buffer.reset(size)) {
    return Status(Code::kNoMemory, "no memory for " + std::to_string(size) +
                                       " bytes at offset " +
                                       std::to_string(extent.begin));
  }
  Status status = file_->read(extent.begin, buffer.all());
  if (!status.ok()) return status;
  return RawBytes{extent.begin, buffer.all()};
}

FileReader::Run FileReader::find_run(std::span<const Request> requests) const {
  const File::Hints& hints = file_->hints();
  Run run{1, extent(requests[0].record)};
  for (; run.count < requests.size(); ++run.count) {
    const Extent next = extent(requests[run.count].record);
    if (next.begin > run.extent.end + hints.gap_bytes ||
        next.end > run.extent.begin + hints.run_bytes) {
      break;
    }
    run.extent.end = std::max(run.extent.end, next.end);
  }
  return run;
}

Status FileReader::read_runs(std::span<const Request> requests,
                             const ReadAlone& alone,
                             const Deliver& deliver) const {
  Status status = check_mapped();
  while (status.ok() && !requests.empty()) {
    const Run run = find_run(requests);
    status = read_run(requests.first(run.count), run.extent, alone, deliver);
    requests = requests.subspan(run.count);
  }
  run_buffer().shrink(kMaxSpareBytes);
  return status;
}

Status FileReader::read_run(std::span<const Request> requests,
                            const Extent& extent, const ReadAlone& alone,
                            const Deliver& deliver) const {
  const Request& first = requests.front();
  if (requests.size() == 1 && file_->mapped().empty()) {
    auto done = alone(first);
    if (!done.ok()) return done.status();
    if (done.value()) return {};
  }
  auto bytes = fetch(extent, run_buffer());
  if (!bytes.ok() &&
      (requests.size() == 1 || bytes.status().code() == Code::kRaised)) {
    return explain(bytes.status(), first.record);
  }
  for (const Request& request : requests) {
    // Where reading all failed, some may still be had one by one.
    if (!bytes.ok()) {
      Status status = read_run(std::span(&request, 1),
                               this->extent(request.record), alone, deliver);
      if (!status.ok()) return status;
      continue;
    }
    Status status = deliver(request, bytes.value());
    if (!status.ok()) return explain(status, request.record);
  }
  return {};
}

}  // namespace gristmill
