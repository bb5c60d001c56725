#include "core/files/file_reader.hpp"

#include <algorithm>

#include "core/files/verify.hpp"

namespace gristmill {
namespace {

// Maximum memory that a thread keeps between reads.
constexpr std::size_t kMaxSpareBytes = std::size_t{4} << 20;

// Larger mapped ranges are loaded with will_need() before they are accessed.
constexpr std::uint64_t kWillNeedBytes = 4 * 4096;

ByteBuffer& run_buffer() {
  thread_local ByteBuffer buffer;
  return buffer;
}

// The bytes that a PrefetchedBytes provides to the reads of this thread.
struct ThreadBytes {
  const FileReader* reader = nullptr;
  RawBytes bytes;
};

ThreadBytes& thread_bytes() {
  thread_local ThreadBytes bytes;
  return bytes;
}

}  // namespace

FileReader::PrefetchedBytes::PrefetchedBytes(const FileReader& reader,
                                             const RawBytes& bytes) {
  thread_bytes() = {&reader, bytes};
}

FileReader::PrefetchedBytes::~PrefetchedBytes() { thread_bytes() = {}; }

Status add_file_context(const File& file, const Status& status) {
  if (status.ok() || status.is_external()) return status;
  const std::string changed = file.describe_change();
  const bool is_mentioned = status.message().find(changed) != std::string::npos;
  return Status(status.code(), file.path(), ": ", status.message(),
                is_mentioned ? "" : "; " + changed);
}

// One read returns records that lie near each other.  Sharing stops at
// multiples of run_bytes, so that several threads can split a long run.
bool FileReader::shares_work(std::int64_t left, std::int64_t right) const {
  const File::Hints& hints = file_->hints();
  if (hints.parallel == 1) return false;
  const Extent first = extent(left);
  const Extent second = extent(right);
  return first.begin / hints.run_bytes == second.begin / hints.run_bytes &&
         second.begin <= first.end + hints.gap_bytes;
}

Status FileReader::check_mapped() const {
  if (file_->mapped().empty() || !file_->has_shrunk()) return {};
  return damaged(path(), ": ", file_->describe_change());
}

Status FileReader::add_record_context(const Status& status,
                                      std::int64_t record) const {
  if (status.code() == Code::kRaised) {
    return Status::raised(status.cause(), path() + ": " + describe(record));
  }
  if (status.ok() || status.is_external()) return status;
  return add_file_context(
      *file_, Status(status.code(), describe(record), ": ", status.message()));
}

Result<RawBytes> FileReader::fetch(const Extent& extent,
                                   ByteBuffer& buffer) const {
  const std::uint64_t size = extent.end - extent.begin;
  const ThreadBytes& prefetched = thread_bytes();
  if (prefetched.reader == this && prefetched.bytes.begin <= extent.begin &&
      extent.end <= prefetched.bytes.end()) {
    return RawBytes{extent.begin,
                    prefetched.bytes.from(extent.begin).bytes.first(size)};
  }
  const auto mapped = file_->mapped();
  if (!mapped.empty()) {
    if (size > kWillNeedBytes) file_->will_need(extent.begin, size);
    return RawBytes{extent.begin, mapped.subspan(extent.begin, size)};
  }
  if (!buffer.reset(size)) {
    return no_memory_for(size, " bytes at offset ", extent.begin);
  }
  TRY(file_->read(extent.begin, buffer.all()));
  return RawBytes{extent.begin, buffer.all()};
}

std::pair<std::size_t, FileReader::Extent> FileReader::next_run(
    std::span<const Request> requests) const {
  const File::Hints& hints = file_->hints();
  Extent run = extent(requests[0].record);
  std::size_t count = 1;
  for (; count < requests.size(); ++count) {
    const Extent next = extent(requests[count].record);
    // A damaged index may list a record before the previous one.
    if (next.begin < run.begin || next.begin > run.end + hints.gap_bytes ||
        next.end > run.begin + hints.run_bytes) {
      break;
    }
    run.end = std::max(run.end, next.end);
  }
  return {count, run};
}

Status FileReader::read_runs(std::span<const Request> requests,
                             const Deliver& deliver) const {
  Status status = check_mapped();
  while (status.ok() && !requests.empty()) {
    const auto [count, run] = next_run(requests);
    status = read_run(requests.first(count), run, deliver);
    requests = requests.subspan(count);
  }
  run_buffer().shrink(kMaxSpareBytes);
  return status;
}

Status FileReader::add_runs(std::span<const Request> requests,
                            std::vector<Run>& runs) const {
  // Records that need no bytes come first.
  std::vector<Request> uncached;
  std::vector<Request> cached;
  for (const Request& request : requests) {
    (is_cached(request.record) ? cached : uncached).push_back(request);
  }
  if (!cached.empty()) {
    runs.push_back({nullptr, this, std::move(cached), 0, 0});
  }
  std::span<const Request> pending = uncached;
  while (!pending.empty()) {
    const auto [count, run] = next_run(pending);
    const auto covered = pending.first(count);
    runs.push_back(
        {nullptr, this, {covered.begin(), covered.end()}, run.begin, run.end});
    pending = pending.subspan(count);
  }
  return {};
}

Status FileReader::read_run(std::span<const Request> requests,
                            const Extent& extent,
                            const Deliver& deliver) const {
  const std::int64_t first = requests.front().record;
  auto bytes = fetch(extent, run_buffer());
  // An exception of a Python file is returned at once.
  if (!bytes.ok() &&
      (requests.size() == 1 || bytes.status().code() == Code::kRaised)) {
    return add_record_context(bytes.status(), first);
  }
  for (const Request& request : requests) {
    // If the read of the whole run failed, reading the records one by one may
    // still succeed for some of them.
    TRY(bytes.ok() ? deliver(request, bytes.value())
                   : read_run(std::span(&request, 1),
                              this->extent(request.record), deliver));
  }
  return {};
}

}  // namespace gristmill
