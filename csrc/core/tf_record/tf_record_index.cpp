#include "core/tf_record/tf_record_index.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <utility>

#include "core/base/byte_buffer.hpp"

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

std::string placed(std::uint64_t record, std::uint64_t offset,
                   const std::string& message) {
  return "record " + std::to_string(record) + " at offset " +
         std::to_string(offset) + ": " + message;
}

// Reads heads one after the other.
class HeadReader {
 public:
  HeadReader(const File& file, ScanProgress& progress)
      : file_(file),
        steps_(file.hints().parallel > 1 ? kFarSteps : Steps()),
        progress_(progress) {}

  // Sets `head` to the one at `at`, valid until the next call.  `records` is
  // how many end there.
  Status read(std::uint64_t at, std::uint64_t records,
              std::span<const std::byte>& head) {
    if (at < begin_ || at + kFrameHead > begin_ + window_.all().size()) {
      Status status = move(at, records);
      if (!status.ok()) return status;
    }
    head = window_.all().subspan(static_cast<std::size_t>(at - begin_),
                                 kFrameHead);
    return {};
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
    if (!window_.reset(size)) {
      return Status(Code::kNoMemory, "no memory to read");
    }
    begin_ = at;
    return file_.read(at, window_.all());
  }

  const File& file_;
  const Steps steps_;
  ScanProgress& progress_;
  ByteBuffer window_;
  std::uint64_t begin_ = 0;
};

Status truncated(std::uint64_t record, std::uint64_t offset,
                 const std::string& found) {
  return Status(Code::kInvalidArgument,
                placed(record, offset,
                       found + ": it is still being written, or was not "
                               "copied whole"));
}

// Finds a file out that does not begin as one of records does.
Status check_begin(const File& file) {
  std::array<std::byte, kFrameHead> bytes;
  const std::uint64_t size = std::min<std::uint64_t>(file.size(), kFrameHead);
  const auto begin = std::span(bytes).first(static_cast<std::size_t>(size));
  Status status = file.read(0, begin);
  if (!status.ok()) return status;
  const auto compression = frame_compression(begin);
  if (!compression.empty()) {
    return Status(
        Code::kInvalidArgument,
        "the file is compressed with " + std::string(compression) +
            ", so that it can only be read from its start: use "
            "sources.read_tf_records, or convert it to an ArrayRecord file by "
            "`gristmill convert`");
  }
  if (size < kFrameHead) return {};  // Empty, or truncated.
  const auto length = frame_length(begin);
  if (length.ok()) return {};
  return Status(
      Code::kInvalidArgument,
      "not a TFRecord file: " + placed(0, 0, length.status().message()));
}

}  // namespace

void TfRecordIndex::Builder::add(std::uint64_t data_size) {
  places_.add(end_, 0);
  end_ += kFrameBytes + data_size;
}

TfRecordIndex TfRecordIndex::Builder::finish() && {
  places_.finish(end_);
  return TfRecordIndex(std::move(places_));
}

Result<TfRecordIndex> TfRecordIndex::scan(const File& file,
                                          ScanProgress& progress) {
  Status status = check_begin(file);
  if (!status.ok()) return status;
  const std::uint64_t size = file.size();
  Builder builder;
  HeadReader heads(file, progress);
  while (builder.end() < size) {
    const std::uint64_t at = builder.end();
    const std::uint64_t left = size - at;
    if (left < kFrameHead) {
      return truncated(builder.size(), at,
                       "the file ends within its length, after " +
                           std::to_string(left) + " bytes");
    }
    std::span<const std::byte> head;
    status = heads.read(at, builder.size(), head);
    if (!status.ok()) return status;
    auto length = frame_length(head);
    if (!length.ok()) {
      return Status(Code::kInvalidArgument,
                    placed(builder.size(), at,
                           length.status().message() +
                               ": the file is damaged from here on"));
    }
    if (left < kFrameBytes || length.value() > left - kFrameBytes) {
      return truncated(builder.size(), at,
                       "it has " + std::to_string(length.value()) +
                           " bytes, but the file ends " +
                           std::to_string(left - kFrameHead) +
                           " bytes after its head");
    }
    builder.add(length.value());
  }
  progress.done_bytes.store(size, std::memory_order_relaxed);
  return std::move(builder).finish();
}

}  // namespace gristmill
