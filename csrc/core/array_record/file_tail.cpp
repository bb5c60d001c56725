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
  const std::uint64_t ahead = file_.hints().tail_bytes;
  std::vector<std::byte> kept;
  if (ahead > 0 && bytes_.empty()) {
    end = file_.size();
    begin = std::min(begin, end - std::min(ahead, end));
  } else if (ahead > 0) {
    end = std::min(std::max(end, begin + most_ahead_), file_.size());
    if (begin < begin_ && end >= begin_) {
      end = begin_;
      kept.swap(bytes_);
    }
  }
  begin_ = begin;
  bytes_.resize(end - begin);
  TRY(file_.read(begin, bytes_));
  bytes_.insert(bytes_.end(), kept.begin(), kept.end());
  return {};
}

}  // namespace gristmill
