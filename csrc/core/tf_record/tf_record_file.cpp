#include "core/tf_record/tf_record_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/tf_record/tf_record_frame.hpp"
#include "core/tf_record/tf_record_sidecar.hpp"
#include "core/base/varint.hpp"

namespace gristmill {
namespace {

using Request = RecordReader::Request;

// Larger records are read straight to their place; smaller ones are cheaper to
// copy than to scatter.
constexpr std::uint64_t kLargeRecord = std::uint64_t{16} << 10;

// A mapped range of more than some pages is asked for before it is touched.
constexpr std::uint64_t kWillNeedBytes = 4 * 4096;

// Adds to a message which file it is about, and how that has changed.
Status name_file(const File& file, const Status& status) {
  if (status.ok() || status.is_external()) return status;
  const std::string changed = file.change();
  const bool said = status.message().find(changed) != std::string::npos;
  return Status(status.code(), file.path() + ": " + status.message() +
                                   (said ? "" : "; " + changed));
}

Result<TfRecordIndex> scan(const File& file, ScanProgress& progress) {
  auto index = TfRecordIndex::scan(file, progress);
  if (!index.ok()) return name_file(file, index.status());
  const std::string changed = file.change();
  if (changed.empty()) return index;
  return Status(Code::kInvalidArgument,
                file.path() + ": " + changed +
                    ", while its records were counted: wait until it is "
                    "complete");
}

}  // namespace

Result<std::shared_ptr<const TfRecordFile>> TfRecordFile::open(
    std::string path, const Options& options, ScanProgress& progress) {
  auto file = LocalFile::open(std::move(path), options.access);
  if (!file.ok()) return file.status();
  return open(std::move(file).value(), options, progress);
}

Result<std::shared_ptr<const TfRecordFile>> TfRecordFile::open(
    File::Ptr file, const Options& options, ScanProgress& progress) {
  const FileStamp stamp = FileStamp::of(*file);
  const auto made = [&](TfRecordIndex index, std::string sidecar) {
    return std::shared_ptr<const TfRecordFile>(new TfRecordFile(
        std::move(file), std::move(index), std::move(sidecar), options.verify));
  };
  for (const std::string& sidecar : options.sidecars) {
    auto index = load_sidecar(sidecar, stamp);
    if (index.ok()) return made(std::move(index).value(), sidecar);
  }
  auto index = scan(*file, progress);
  if (!index.ok()) return index.status();
  return made(std::move(index).value(), "");
}

Status TfRecordFile::save_index(const std::string& sidecar) const {
  return save_sidecar(sidecar, index_, FileStamp::of(*file_));
}

Status TfRecordFile::sizes(std::span<const std::int64_t> records,
                           std::span<std::int64_t> sizes) const {
  auto planned = plan(records);
  if (!planned.ok()) return planned.status();
  for (const Request& request : planned.value()) {
    sizes[request.slot] =
        static_cast<std::int64_t>(place(request.record).data_size());
  }
  return {};
}

Status TfRecordFile::explain(const Status& status,
                             const Request& request) const {
  const std::string which = "record " + std::to_string(request.record) +
                            " at offset " +
                            std::to_string(place(request.record).begin);
  if (status.code() == Code::kRaised) {
    return Status::raised(status.cause(), path() + ": " + which);
  }
  if (status.ok() || status.is_external()) return status;
  return name_file(*file_,
                   Status(status.code(), which + ": " + status.message()));
}

// Far away, what lies near together is had by one read; that goes on for as
// long as one read may be, so that several make the best of many neighbours.
bool TfRecordFile::shares_work(std::int64_t left, std::int64_t right) const {
  const File::Hints& hints = file_->hints();
  if (hints.parallel == 1) return false;
  const auto here = place(left);
  const auto there = place(right);
  return here.begin / hints.run_bytes == there.begin / hints.run_bytes &&
         there.begin <= here.end + hints.gap_bytes;
}

Status TfRecordFile::read(std::span<const Request> requests, Sink& sink) const {
  // Touching mapped memory that is no longer there would end the process.
  if (!file_->mapped().empty() && file_->shrunk()) {
    return Status(Code::kInvalidArgument, path() + ": " + file_->change());
  }
  while (!requests.empty()) {
    const std::size_t count = find_run(requests);
    Status status = read_run(requests.first(count), sink);
    if (!status.ok()) return status;
    requests = requests.subspan(count);
  }
  return {};
}

// Returns how many requests to serve by one read.
std::size_t TfRecordFile::find_run(std::span<const Request> requests) const {
  const File::Hints& hints = file_->hints();
  const auto first = place(requests[0].record);
  std::uint64_t end = first.end;
  std::size_t count = 1;
  for (; count < requests.size(); ++count) {
    const auto next = place(requests[count].record);
    if (next.begin > end + hints.gap_bytes ||
        next.end > first.begin + hints.run_bytes) {
      break;
    }
    end = std::max(end, next.end);
  }
  return count;
}

Status TfRecordFile::read_run(std::span<const Request> requests,
                              Sink& sink) const {
  thread_local ByteBuffer buffer;  // Of hints.run_bytes at most.
  const std::uint64_t begin = place(requests.front().record).begin;
  const std::uint64_t end = place(requests.back().record).end;
  const auto mapped = file_->mapped();
  std::span<const std::byte> run;
  if (!mapped.empty()) {
    if (end - begin > kWillNeedBytes) file_->will_need(begin, end - begin);
    run = mapped.subspan(begin, end - begin);
  } else {
    if (requests.size() == 1 && end - begin > kLargeRecord) {
      return explain(read_large(requests[0], sink), requests[0]);
    }
    if (!buffer.reset(end - begin)) {
      return Status(Code::kNoMemory, path() + ": no memory to read");
    }
    Status status = file_->read(begin, buffer.all());
    if (status.is_external() || (!status.ok() && requests.size() == 1)) {
      return explain(status, requests[0]);
    }
    if (!status.ok()) {  // It ends early: some may still be had one by one.
      for (std::size_t i = 0; i < requests.size(); ++i) {
        status = read_run(requests.subspan(i, 1), sink);
        if (!status.ok()) return status;
      }
      return {};
    }
    run = buffer.all();
  }
  for (const Request& request : requests) {
    const auto at = place(request.record);
    const auto frame = run.subspan(at.begin - begin, at.end - at.begin);
    Status status = deliver(request, frame, sink);
    if (!status.ok()) return explain(status, request);
  }
  return {};
}

// Reads a record to its place, and what frames it beside.
Status TfRecordFile::read_large(const Request& request, Sink& sink) const {
  const auto at = place(request.record);
  auto to = sink.place(request.slot, at.data_size());
  if (!to.ok()) return to.status();
  std::array<std::byte, kFrameHead> head;
  std::array<std::byte, kFrameTail> tail;
  const std::array<std::span<std::byte>, 3> parts = {head, to.value(), tail};
  Status status = file_->read_parts(at.begin, parts);
  if (status.ok()) status = check_head(head, at.data_size());
  if (!status.ok() || verify_ != Verify::kAll) return status;
  return check_frame_data(to.value(), tail);
}

// Checks a record and copies it to its place.
Status TfRecordFile::deliver(const Request& request,
                             std::span<const std::byte> frame,
                             Sink& sink) const {
  const auto data = frame.subspan(kFrameHead, frame.size() - kFrameBytes);
  Status status = check_head(frame.first(kFrameHead), data.size());
  if (status.ok() && verify_ == Verify::kAll) {
    status = check_frame_data(data, frame.last(kFrameTail));
  }
  if (!status.ok()) return status;
  auto to = sink.place(request.slot, data.size());
  if (!to.ok()) return to.status();
  if (!data.empty()) std::memcpy(to.value().data(), data.data(), data.size());
  return {};
}

// Without checksums too, a record is as long as its head says: whoever wrote
// the index cannot cut records at other places.
Status TfRecordFile::check_head(std::span<const std::byte> head,
                                std::uint64_t data_size) const {
  std::string message;
  if (verify_ != Verify::kNone) {
    auto checked = frame_length(head);
    if (!checked.ok()) message = checked.status().message();
  }
  if (message.empty()) {
    const auto length = load_le<std::uint64_t>(head.data());
    if (length == data_size) return {};
    message = "it has " + std::to_string(length) +
              " bytes, expected by the index " + std::to_string(data_size);
  }
  if (!sidecar_.empty()) {
    message += "; if the file is whole, its index is wrong: delete " + sidecar_;
  }
  return Status(Code::kInvalidArgument, message);
}

}  // namespace gristmill
