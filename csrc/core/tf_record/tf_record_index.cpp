#include "core/tf_record/tf_record_index.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include "core/base/byte_buffer.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

// Bytes to read at once: of small records many, of large ones only the head.
// Large is what takes longer to read than to ask for the next head.
struct Steps {
  std::uint64_t window = std::uint64_t{256} << 10;
  std::uint64_t large_record = std::uint64_t{16} << 10;
};
constexpr std::uint64_t kGlance = 64;

// Each read of a file that is far away waits for as long as megabytes take.
constexpr Steps kFarSteps = {std::uint64_t{8} << 20, std::uint64_t{4} << 20};

// Reads heads one after the other.
class HeadReader {
 public:
  HeadReader(const File& file, ScanProgress& progress)
      : file_(file),
        steps_(file.hints().parallel > 1 ? kFarSteps : Steps()),
        progress_(progress) {}

  // Returns the head at `at`, valid until the next call.  `records` is how
  // many end there.
  Result<std::span<const std::byte>> read(std::uint64_t at,
                                          std::uint64_t records) {
    if (at < begin_ || at + kFrameHead > begin_ + window_.all().size()) {
      TRY(move(at, records));
    }
    return std::span<const std::byte>(window_.all())
        .subspan(static_cast<std::size_t>(at - begin_), kFrameHead);
  }

 private:
  Status move(std::uint64_t at, std::uint64_t records) {
    progress_.done_bytes.store(at, std::memory_order_relaxed);
    if (progress_.cancelled.load(std::memory_order_relaxed)) {
      return Status::system(ECANCELED, "indexing was cancelled");
    }
    const bool large = records > 0 && at / records > steps_.large_record;
    const std::uint64_t size =
        std::min(large ? kGlance : steps_.window, file_.size() - at);
    if (!window_.reset(size)) return no_memory_for("its heads");
    begin_ = at;
    return file_.read(at, window_.all());
  }

  const File& file_;
  const Steps steps_;
  ScanProgress& progress_;
  ByteBuffer window_;
  std::uint64_t begin_ = 0;
};

// Finds a file out that does not begin as one of records does.
Status check_begin(const File& file) {
  std::array<std::byte, kFrameHead> bytes;
  const std::uint64_t size = std::min<std::uint64_t>(file.size(), kFrameHead);
  const auto begin = std::span(bytes).first(static_cast<std::size_t>(size));
  TRY(file.read(0, begin));
  const auto compression = frame_compression(begin);
  if (!compression.empty()) {
    return damaged(
        "the file is compressed with ", compression,
        ", so that it can only be read from its start: use "
        "sources.read_tf_records, or convert it to an ArrayRecord file by "
        "`gristmill convert`");
  }
  if (size < kFrameHead) return {};  // Empty, or truncated.
  const Status status = check_frame_length(begin);
  if (status.ok()) return {};
  return damaged("not a TFRecord file: ",
                 damaged_record(0, 0, status.message()).message());
}

}  // namespace

Result<TfRecordIndex> TfRecordIndex::scan(const File& file,
                                          ScanProgress& progress) {
  TRY(check_begin(file));
  const std::uint64_t size = file.size();
  TfRecordIndex index;
  HeadReader heads(file, progress);
  while (index.end() < size) {
    const std::uint64_t at = index.end();
    const std::uint64_t left = size - at;
    if (left < kFrameHead) return truncated_record(index.size(), at, left, 0);
    const auto head = TRY(heads.read(at, index.size()));
    const Status status = check_frame_length(head);
    if (!status.ok()) {
      return damaged_record(index.size(), at, status.message(),
                            ": the file is damaged from here on");
    }
    const std::uint64_t data_size = frame_length(head);
    if (left < kFrameBytes || data_size > left - kFrameBytes) {
      return truncated_record(index.size(), at, left, data_size);
    }
    index.add(data_size);
  }
  progress.done_bytes.store(size, std::memory_order_relaxed);
  index.finish();
  return index;
}

}  // namespace gristmill
