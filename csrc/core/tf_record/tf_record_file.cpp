#include "core/tf_record/tf_record_file.hpp"

#include <algorithm>
#include <utility>

#include "core/tf_record/tf_record_frame.hpp"

namespace gristmill {
Result<std::shared_ptr<const TfRecordFile>> TfRecordFile::open(
    File::Ptr file, const Options& options, ScanProgress& progress) {
  auto index = TfRecordIndex::read(*file, options.index_paths, progress);
  if (!index.ok()) return add_file_context(*file, index.status());
  return std::shared_ptr<const TfRecordFile>(new TfRecordFile(
      std::move(file), std::move(index).value(), options.verify));
}

Status TfRecordFile::sizes(std::span<const Request> requests,
                           std::span<std::int64_t> sizes) const {
  for (const Request& request : requests) {
    sizes[request.slot] =
        static_cast<std::int64_t>(place(request.record).data_size());
  }
  return {};
}

std::string TfRecordFile::describe(std::int64_t record) const {
  return concat("record ", record, " at offset ", place(record).begin);
}

Status TfRecordFile::read(std::span<const Request> requests, Sink& sink) const {
  return read_runs(requests, [&](const Request& request, const RawBytes& run) {
    const auto range = place(request.record);
    const auto frame =
        run.from(range.begin).bytes.first(range.end - range.begin);
    return add_record_context(deliver(request, frame, sink), request.record);
  });
}

// Checks a record and copies its data to the sink.
Status TfRecordFile::deliver(const Request& request,
                             std::span<const std::byte> frame,
                             Sink& sink) const {
  if (frame.size() < kFrameBytes) {
    return damaged("the index lists ", frame.size(),
                   " bytes for it, expected at least ", kFrameBytes,
                   wrong_index_hint());
  }
  const auto data = frame.subspan(kFrameHead, frame.size() - kFrameBytes);
  TRY(check_head(frame.first(kFrameHead), data.size()));
  if (verify_ == Verify::kAll) {
    TRY(check_frame_data(data, frame.last(kFrameTail)));
  }
  std::ranges::copy(data, TRY(sink.place(request.slot, data.size())).begin());
  return {};
}

// Compares the length in the head with the index, even if checksums are not
// verified, so that a wrong index cannot cut records at other places.
Status TfRecordFile::check_head(std::span<const std::byte> head,
                                std::uint64_t data_size) const {
  Status status;
  if (verify_ != Verify::kNone) status = check_frame_length(head);
  const std::uint64_t length = frame_length(head);
  if (status.ok() && length == data_size) return {};
  const std::string message =
      status.ok()
          ? concat("it has ", length, " bytes, but the index lists ", data_size)
          : status.message();
  return damaged(message, wrong_index_hint());
}

// Returns a hint that the index may be wrong instead of the file.
std::string TfRecordFile::wrong_index_hint() const {
  if (index_.path().empty()) return "";
  return "; if the file is whole, its index is wrong: delete " + index_.path();
}

}  // namespace gristmill
