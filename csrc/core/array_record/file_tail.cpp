#include "core/array_record/file_tail.hpp"

#include <algorithm>

namespace gristmill {

Result<RawBytes> FileTail::fetch(std::uint64_t offset, std::uint64_t count) {
  const auto mapped = file_.mapped();
  if (!mapped.empty()) return RawBytes{offset, mapped.subspan(offset, count)};
  if (offset < begin_ || offset + count > begin_ + bytes_.size()) {
    TRY(read(offset, offset + count));
  }
  return RawBytes{offset, std::span<const std::byte>(bytes_).subspan(
                              offset - begin_, count)};
}

// Reads [begin, end), and more if file_.hints() has tail_bytes.  Keeps the
// bytes that it already has if they follow the new range.
Status FileTail::read(std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t tail_bytes = file_.hints().tail_bytes;
  std::vector<std::byte> following_bytes;
  if (tail_bytes > 0 && bytes_.empty()) {
    end = file_.size();
    begin = std::min(begin, end - std::min(tail_bytes, end));
  } else if (tail_bytes > 0) {
    end = std::min(std::max(end, begin + min_read_bytes_), file_.size());
    if (begin < begin_ && end >= begin_) {
      end = begin_;
      following_bytes.swap(bytes_);
    }
  }
  begin_ = begin;
  bytes_.resize(end - begin);
  TRY(file_.read(begin, bytes_));
  bytes_.insert(bytes_.end(), following_bytes.begin(), following_bytes.end());
  return {};
}

}  // namespace gristmill
