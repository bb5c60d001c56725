// A TfRecordParser splits a stream of bytes into the records of a TFRecord
// file.
//
// It does not read.  Its owner writes bytes from a file or a decompressor into
// free_space() and takes complete records out.  The memory is proportional to
// the longest record received, even if a damaged stream has larger lengths.
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
  // The stream begins at a record.  `record` is the number of this record and
  // `offset` its offset in the whole stream; errors name both.
  TfRecordParser(Verify verify, std::uint64_t record, std::uint64_t offset)
      : verify_(verify), record_(record), offset_(offset) {}

  // Returns memory for the next bytes of the stream; it is never empty.
  Result<std::span<std::byte>> free_space();

  // Records that the owner wrote `count` bytes into free_space().
  void add_received(std::size_t count) noexcept { end_ += count; }

  // Returns whether the next record is complete.  Fails if its length is
  // damaged; the rest of the stream cannot be parsed then.
  Result<bool> has_complete_record() const;

  // Returns the size of the next record with its frame.  REQUIRES:
  // has_complete_record().
  [[nodiscard]] std::size_t next_frame_bytes() const noexcept;

  // Moves past the next record and returns its data, valid until the next call
  // of free_space().  Also moves past it if its data is damaged.  REQUIRES:
  // has_complete_record().
  Result<std::span<const std::byte>> take_record();

  // Checks that the stream ended after a complete record.
  Status check_end() const;

  // The number and the offset of the next record.
  [[nodiscard]] std::uint64_t record() const noexcept { return record_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

 private:
  [[nodiscard]] std::span<const std::byte> unread() const noexcept {
    return buffer_.all().subspan(begin_, end_ - begin_);
  }

  const Verify verify_;
  std::uint64_t record_;
  std::uint64_t offset_;

  // The bytes [begin_, end_) of the buffer were received and not yet taken.
  ByteBuffer buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace gristmill
