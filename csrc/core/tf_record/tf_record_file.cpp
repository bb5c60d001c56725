#include "core/tf_record/tf_record_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/varint.hpp"
#include "core/tf_record/tf_record_frame.hpp"
#include "core/tf_record/tf_record_sidecar.hpp"

namespace gristmill {
namespace {

using Request = RecordReader::Request;

// Larger records are read straight to their place; smaller ones are cheaper to
// copy than to scatter.
constexpr std::uint64_t kLargeRecord = std::uint64_t{16} << 10;

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
  return save_sidecar(sidecar, index_, FileStamp::of(file()));
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

std::string TfRecordFile::describe(std::int64_t record) const {
  return "record " + std::to_string(record) + " at offset " +
         std::to_string(place(record).begin);
}

Status TfRecordFile::read(std::span<const Request> requests, Sink& sink) const {
  return read_runs(
      requests,
      [&](const Request& request) -> Result<bool> {
        const Extent at = extent(request.record);
        if (at.end - at.begin <= kLargeRecord) return false;
        Status status = explain(read_large(request, sink), request.record);
        if (!status.ok()) return status;
        return true;
      },
      [&](const Request& request, const RawBytes& run) {
        const Extent at = extent(request.record);
        return deliver(
            request, run.bytes.subspan(at.begin - run.begin, at.end - at.begin),
            sink);
      });
}

// Reads a record to its place, and what frames it beside.
Status TfRecordFile::read_large(const Request& request, Sink& sink) const {
  const auto at = place(request.record);
  auto to = sink.place(request.slot, at.data_size());
  if (!to.ok()) return to.status();
  std::array<std::byte, kFrameHead> head;
  std::array<std::byte, kFrameTail> tail;
  const std::array<std::span<std::byte>, 3> parts = {head, to.value(), tail};
  Status status = file().read_parts(at.begin, parts);
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
