// A TfRecordParser cuts a stream of bytes into the records of a TFRecord file.
//
// It reads nothing itself: its owner puts bytes into room() as they come, from
// a file or a decompressor, and takes whole records out.  Memory grows with the
// longest record that came, whatever lengths a damaged stream claims.
//
// Thread safety: none; a parser belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/byte_buffer.hpp"
#include "core/base/status.hpp"
#include "core/files/verify.hpp"

namespace gristmill {

class TfRecordParser {
 public:
  // The stream begins at a record: `record` is its number and `offset` its
  // place in the whole stream, for errors.
  TfRecordParser(Verify verify, std::uint64_t record, std::uint64_t offset)
      : verify_(verify), record_(record), offset_(offset) {}

  // Returns memory for the bytes that come next; it is never empty.
  Result<std::span<std::byte>> room();

  // Takes the first `count` bytes of room() as received.
  void received(std::size_t count) noexcept { end_ += count; }

  // True if the next record is there whole; or its length is damaged, which
  // leaves nothing to go on with.
  Result<bool> ready() const;

  // How many bytes the next record takes, frame included.  REQUIRES: ready().
  [[nodiscard]] std::size_t next_bytes() const noexcept;

  // Moves past the next record and returns its data, valid until the next
  // room().  If its data are damaged the record after it comes next.
  // REQUIRES: ready().
  Result<std::span<const std::byte>> take();

  // Checks that the stream ended behind a record.
  Status finish() const;

  // The next record, and where it begins.
  [[nodiscard]] std::uint64_t record() const noexcept { return record_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

 private:
  [[nodiscard]] std::span<const std::byte> unread() const noexcept {
    return buffer_.all().subspan(begin_, end_ - begin_);
  }

  const Verify verify_;
  std::uint64_t record_;
  std::uint64_t offset_;

  // Bytes [begin_, end_) of the buffer were received and not yet taken.
  ByteBuffer buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace gristmill
