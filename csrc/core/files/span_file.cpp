#include "core/files/span_file.hpp"

#include <algorithm>
#include <vector>

#include "core/files/verify.hpp"

namespace gristmill {
namespace {

// Lists slices of the records of another index.
class SliceIndex final : public SpanIndex {
 public:
  SliceIndex(std::shared_ptr<const SpanIndex> records,
             std::span<const RecordReader::Slice> slices,
             std::uint64_t item_bytes)
      : records_(std::move(records)),
        slices_(slices.begin(), slices.end()),
        item_bytes_(item_bytes) {}

  [[nodiscard]] std::uint64_t size() const override { return slices_.size(); }
  [[nodiscard]] Span at(std::uint64_t i) const override {
    const std::uint64_t begin = records_->at(record(i)).begin;
    return {begin + static_cast<std::uint64_t>(slices_[i].begin) * item_bytes_,
            begin + static_cast<std::uint64_t>(slices_[i].end) * item_bytes_};
  }
  [[nodiscard]] std::uint64_t number(std::uint64_t i) const override {
    return records_->number(record(i));
  }
  [[nodiscard]] const std::string& path() const override {
    return records_->path();
  }

 private:
  [[nodiscard]] std::uint64_t record(std::uint64_t i) const {
    return static_cast<std::uint64_t>(slices_[i].record);
  }

  const std::shared_ptr<const SpanIndex> records_;
  const std::vector<RecordReader::Slice> slices_;
  const std::uint64_t item_bytes_;
};

}  // namespace

FileReader::Extent SpanFile::extent(std::int64_t record) const {
  const auto span = index_->at(static_cast<std::uint64_t>(record));
  const std::uint64_t begin = std::min(span.begin, file().size());
  return {begin, std::clamp(span.end, begin, file().size())};
}

std::string SpanFile::describe(std::int64_t record) const {
  const auto i = static_cast<std::uint64_t>(record);
  return concat(noun_, " ", index_->number(i), " at offset ",
                index_->at(i).begin);
}

Status SpanFile::check(std::int64_t record) const {
  const auto span = index_->at(static_cast<std::uint64_t>(record));
  if (span.begin <= span.end && span.end <= file().size()) return {};
  const std::string& index = index_->path();
  const std::string other = index.empty() ? " or written over"
                                          : concat(", or its index ", index,
                                                   " belongs to another file");
  return add_record_context(
      damaged("the index lists the bytes ", span.begin, " to ", span.end,
              ", expected a range within the ", file().size(),
              " bytes of the file: it was cut off", other),
      record);
}

Status SpanFile::sizes(std::span<const Request> requests,
                       std::span<std::int64_t> sizes) const {
  for (const Request& request : requests) {
    TRY(check(request.record));
    const Extent at = extent(request.record);
    sizes[request.slot] = static_cast<std::int64_t>(at.end - at.begin);
  }
  return {};
}

Status SpanFile::read(std::span<const Request> requests, Sink& sink) const {
  for (const Request& request : requests) TRY(check(request.record));
  return read_runs(requests, [&](const Request& request, const RawBytes& run) {
    const Extent at = extent(request.record);
    const auto bytes = run.from(at.begin).bytes.first(at.end - at.begin);
    auto to = sink.place(request.slot, bytes.size());
    if (!to.ok()) return add_record_context(to.status(), request.record);
    std::ranges::copy(bytes, to.value().begin());
    return Status();
  });
}

Status SpanFile::views(std::span<const Request> requests,
                       std::span<View> views) const {
  TRY(check_mapped());
  for (const Request& request : requests) {
    TRY(check(request.record));
    ByteBuffer unused;  // fetch() does not copy from a mapped file.
    views[request.slot] = {share_file(),
                           TRY(fetch(extent(request.record), unused)).bytes};
  }
  return {};
}

Result<std::shared_ptr<const RecordReader>> SpanFile::slices(
    std::span<const Slice> slices, std::uint64_t item_bytes) const {
  for (const Slice& slice : slices) {
    TRY(check(slice.record));
    const Extent at = extent(slice.record);
    const auto length =
        static_cast<std::int64_t>((at.end - at.begin) / item_bytes);
    if (0 <= slice.begin && slice.begin <= slice.end && slice.end <= length) {
      continue;
    }
    return Status(Code::kOutOfRange, path(), ": ", describe(slice.record),
                  ": expected a range of its ", length, " items, got ",
                  slice.begin, " to ", slice.end);
  }
  return std::shared_ptr<const RecordReader>(std::make_shared<const SpanFile>(
      share_file(), std::make_shared<SliceIndex>(index_, slices, item_bytes),
      noun_));
}

Status SpanFile::lengths(std::uint64_t item_bytes, std::uint64_t first,
                         std::span<std::int64_t> lengths) const {
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto record = static_cast<std::int64_t>(first + i);
    const auto span = index_->at(first + i);
    if (span.begin > span.end || span.end > file().size()) return check(record);
    const std::uint64_t bytes = span.end - span.begin;
    if (bytes % item_bytes != 0) {
      return add_record_context(
          damaged("the index lists ", bytes, " bytes, expected a multiple of ",
                  item_bytes),
          record);
    }
    lengths[i] = static_cast<std::int64_t>(bytes / item_bytes);
  }
  return {};
}

}  // namespace gristmill
