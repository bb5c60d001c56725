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

struct Given {
  const FileReader* reader = nullptr;
  RawBytes bytes;
};

Given& given() {
  thread_local Given given;
  return given;
}

}  // namespace

FileReader::AtHand::AtHand(const FileReader& reader, const RawBytes& bytes) {
  given() = {&reader, bytes};
}

FileReader::AtHand::~AtHand() { given() = {}; }

Status name_file(const File& file, const Status& status) {
  if (status.ok() || status.is_external()) return status;
  const std::string changed = file.change();
  const bool said = status.message().find(changed) != std::string::npos;
  return Status(status.code(), file.path(), ": ", status.message(),
                said ? "" : "; " + changed);
}

// One read returns records that lie near each other.  Sharing stops at
// multiples of run_bytes, so that several threads can split a long run.
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
  return damaged(path(), ": ", file_->change());
}

Status FileReader::explain(const Status& status, std::int64_t record) const {
  if (status.code() == Code::kRaised) {
    return Status::raised(status.cause(), path() + ": " + describe(record));
  }
  if (status.ok() || status.is_external()) return status;
  return name_file(
      *file_, Status(status.code(), describe(record), ": ", status.message()));
}

Result<RawBytes> FileReader::fetch(const Extent& extent,
                                   ByteBuffer& buffer) const {
  const std::uint64_t size = extent.end - extent.begin;
  const Given& here = given();
  if (here.reader == this && here.bytes.begin <= extent.begin &&
      extent.end <= here.bytes.end()) {
    return RawBytes{extent.begin,
                    here.bytes.from(extent.begin).bytes.first(size)};
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
  std::vector<Request> wanted;
  std::vector<Request> kept;
  for (const Request& request : requests) {
    (is_kept(request.record) ? kept : wanted).push_back(request);
  }
  if (!kept.empty()) runs.push_back({nullptr, this, std::move(kept), 0, 0});
  std::span<const Request> rest = wanted;
  while (!rest.empty()) {
    const auto [count, run] = next_run(rest);
    const auto here = rest.first(count);
    runs.push_back(
        {nullptr, this, {here.begin(), here.end()}, run.begin, run.end});
    rest = rest.subspan(count);
  }
  return {};
}

Status FileReader::read_run(std::span<const Request> requests,
                            const Extent& extent,
                            const Deliver& deliver) const {
  const std::int64_t first = requests.front().record;
  auto bytes = fetch(extent, run_buffer());
  if (!bytes.ok() &&
      (requests.size() == 1 || bytes.status().code() == Code::kRaised)) {
    return explain(bytes.status(), first);
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
