#include "core/tf_record/tf_record_index.hpp"

#include <algorithm>
#include <array>

#include "core/files/shared_index.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

// Bytes read for a head, which has 12, if the records are large.
constexpr std::uint64_t kMinHeadReadBytes = 64;

// Stored in an index in place of the hash that other formats have.  It stands
// for TFRecord files.
constexpr std::uint64_t kKind = 0x31726674;  // "tfr1"

// Fails if the file does not begin with the head of a record.
Status check_begin(const File& file) {
  std::array<std::byte, kFrameHead> bytes;
  const std::uint64_t size = std::min<std::uint64_t>(file.size(), kFrameHead);
  const auto begin = std::span(bytes).first(static_cast<std::size_t>(size));
  TRY(file.read(0, begin));
  const auto compression = frame_compression(begin);
  if (!compression.empty()) {
    return damaged(
        "the file is compressed with ", compression,
        ", so it can only be read from its start: use "
        "sources.read_tf_records, or convert it to an ArrayRecord file by "
        "`gristmill convert`");
  }
  if (size < kFrameHead) return {};  // Empty, or truncated.
  const Status status = check_frame_length(begin);
  if (status.ok()) return {};
  return damaged("not a TFRecord file: ",
                 damaged_record(0, 0, status.message()).message());
}

Result<PackedChunks> scan(const File& file, ScanProgress& progress) {
  TRY(check_begin(file));
  const std::uint64_t size = file.size();
  PackedChunks places;
  HeadReader heads(file, kMinHeadReadBytes, progress);
  for (std::uint64_t at = 0; at < size;) {
    const std::uint64_t remaining = size - at;
    if (remaining < kFrameHead) {
      return truncated_record(places.size(), at, remaining, 0);
    }
    const auto head = TRY(heads.read(at, kFrameHead, places.size()));
    const Status status = check_frame_length(head);
    if (!status.ok()) {
      return damaged_record(places.size(), at, status.message(),
                            ": the file is damaged from here on");
    }
    const std::uint64_t data_size = frame_length(head);
    if (remaining < kFrameBytes || data_size > remaining - kFrameBytes) {
      return truncated_record(places.size(), at, remaining, data_size);
    }
    places.add(at, 0);  // The offsets of the records determine their sizes.
    at += kFrameBytes + data_size;
  }
  places.finish(size);
  progress.done_bytes.store(size, std::memory_order_relaxed);
  return places;
}

}  // namespace

Result<TfRecordIndex> TfRecordIndex::read(
    const File& file, std::span<const std::string> index_paths,
    ScanProgress& progress) {
  auto [places, path] = TRY(load_or_scan_places(
      file, kKind, index_paths, [&] { return scan(file, progress); }));
  return TfRecordIndex(std::move(places), std::move(path));
}

}  // namespace gristmill
