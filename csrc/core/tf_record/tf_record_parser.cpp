#include "core/tf_record/tf_record_parser.hpp"

#include <cstring>
#include <utility>

#include "core/tf_record/tf_record_frame.hpp"

namespace gristmill {
namespace {

// The initial size of the buffer.
constexpr std::size_t kBufferBytes = std::size_t{256} << 10;

}  // namespace

// When the buffer is full, moves the unread bytes to its front.  If they fill
// more than half of it, moves them to a buffer of twice the size.
Result<std::span<std::byte>> TfRecordParser::free_space() {
  const std::size_t capacity = buffer_.all().size();
  if (end_ < capacity) return buffer_.all().subspan(end_);
  const std::size_t unread = end_ - begin_;
  if (capacity == 0 || unread > capacity / 2) {
    ByteBuffer larger;
    if (!larger.reset(capacity == 0 ? kBufferBytes : 2 * capacity)) {
      return no_memory_for("record ", record_, " at offset ", offset_);
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

Result<bool> TfRecordParser::has_complete_record() const {
  const auto bytes = unread();
  if (bytes.size() < kFrameHead) return false;
  const Status status = check_frame_length(bytes.first(kFrameHead));
  if (!status.ok()) {
    return damaged_record(record_, offset_, status.message(),
                          offset_ == 0 ? ": not a TFRecord file, or damaged"
                                       : ": the file is damaged from here on");
  }
  const std::size_t left = bytes.size() - kFrameHead;
  return left >= kFrameTail && frame_length(bytes) <= left - kFrameTail;
}

std::size_t TfRecordParser::next_frame_bytes() const noexcept {
  return kFrameBytes + static_cast<std::size_t>(frame_length(unread()));
}

Result<std::span<const std::byte>> TfRecordParser::take_record() {
  const std::size_t size = next_frame_bytes();
  const auto frame = unread().first(size);
  const auto data = frame.subspan(kFrameHead, size - kFrameBytes);
  Status status;
  if (verify_ == Verify::kAll) {
    status = check_frame_data(data, frame.last(kFrameTail));
    if (!status.ok()) {
      status = damaged_record(record_, offset_, status.message());
    }
  }
  begin_ += size;
  offset_ += size;
  ++record_;
  TRY(status);
  return data;
}

Status TfRecordParser::check_end() const {
  const auto bytes = unread();
  if (bytes.empty()) return {};
  const bool headless = bytes.size() < kFrameHead;
  return truncated_record(record_, offset_, bytes.size(),
                          headless ? 0 : frame_length(bytes));
}

}  // namespace gristmill
