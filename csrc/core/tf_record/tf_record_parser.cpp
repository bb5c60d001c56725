#include "core/tf_record/tf_record_parser.hpp"

#include <cstring>
#include <utility>

#include "core/base/varint.hpp"
#include "core/tf_record/tf_record_frame.hpp"

namespace gristmill {
namespace {

// Bytes to ask for at a time.
constexpr std::size_t kBufferBytes = std::size_t{256} << 10;

}  // namespace

Status TfRecordParser::placed(const std::string& message) const {
  return Status(Code::kInvalidArgument,
                "record " + std::to_string(record_) + " at offset " +
                    std::to_string(offset_) + ": " + message);
}

// Unread bytes move to the front when the buffer is used up; when they fill
// half of it, to one of twice the size.
Result<std::span<std::byte>> TfRecordParser::room() {
  const std::size_t capacity = buffer_.all().size();
  if (end_ < capacity) return buffer_.all().subspan(end_);
  const std::size_t unread = end_ - begin_;
  if (capacity == 0 || unread > capacity / 2) {
    ByteBuffer larger;
    if (!larger.reset(capacity == 0 ? kBufferBytes : 2 * capacity)) {
      return Status(Code::kNoMemory,
                    "no memory for record " + std::to_string(record_) +
                        " at offset " + std::to_string(offset_));
    }
    if (unread > 0) {
      std::memcpy(larger.all().data(), this->unread().data(), unread);
    }
    buffer_ = std::move(larger);
  } else {
    std::memmove(buffer_.all().data(), this->unread().data(), unread);
  }
  begin_ = 0;
  end_ = unread;
  return buffer_.all().subspan(end_);
}

Result<bool> TfRecordParser::ready() const {
  const auto bytes = unread();
  if (bytes.size() < kFrameHead) return false;
  auto length = frame_length(bytes.first(kFrameHead));
  if (!length.ok()) {
    return placed(length.status().message() +
                  (offset_ == 0 ? ": not a TFRecord file, or damaged"
                                : ": the file is damaged from here on"));
  }
  const std::size_t left = bytes.size() - kFrameHead;
  return left >= kFrameTail && length.value() <= left - kFrameTail;
}

std::size_t TfRecordParser::next_bytes() const noexcept {
  const auto length = load_le<std::uint64_t>(unread().data());
  return kFrameBytes + static_cast<std::size_t>(length);
}

Result<std::span<const std::byte>> TfRecordParser::take() {
  const std::size_t size = next_bytes();
  const auto frame = unread().first(size);
  const auto data = frame.subspan(kFrameHead, size - kFrameBytes);
  Status status;
  if (verify_ == Verify::kAll) {
    status = check_frame_data(data, frame.last(kFrameTail));
    if (!status.ok()) status = placed(status.message());
  }
  begin_ += size;
  offset_ += size;
  ++record_;
  if (!status.ok()) return status;
  return data;
}

Status TfRecordParser::finish() const {
  const auto bytes = unread();
  if (bytes.empty()) return {};
  const std::string found =
      bytes.size() < kFrameHead
          ? "the file ends within its length"
          : "it has " + std::to_string(load_le<std::uint64_t>(bytes.data())) +
                " bytes, but the file ends " +
                std::to_string(bytes.size() - kFrameHead) +
                " bytes after its head";
  return placed(found + ": it is still being written, or was not copied whole");
}

}  // namespace gristmill
