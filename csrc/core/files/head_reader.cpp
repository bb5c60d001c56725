#include "core/files/head_reader.hpp"

#include <algorithm>
#include <cerrno>

#include "core/files/verify.hpp"

namespace gristmill {

HeadReader::HeadReader(const File& file, std::uint64_t min_read_bytes,
                       ScanProgress& progress)
    : file_(file),
      min_read_bytes_(min_read_bytes),
      read_sizes_(file.hints().parallel > 1 ? kRemoteReadSizes
                                            : kLocalReadSizes),
      progress_(progress) {}

Result<std::span<const std::byte>> HeadReader::read(
    std::uint64_t offset, std::uint64_t size, std::uint64_t items_before) {
  if (offset < window_begin_ ||
      offset + size > window_begin_ + window_.all().size()) {
    TRY(read_window(offset, size, items_before));
  }
  return std::span<const std::byte>(window_.all())
      .subspan(static_cast<std::size_t>(offset - window_begin_),
               static_cast<std::size_t>(size));
}

Status HeadReader::read_window(std::uint64_t offset, std::uint64_t size,
                               std::uint64_t items_before) {
  progress_.done_bytes.store(offset, std::memory_order_relaxed);
  if (progress_.cancelled.load(std::memory_order_relaxed)) {
    return Status::system(ECANCELED, "indexing was cancelled");
  }
  const bool items_are_large =
      items_before > 0 && offset / items_before > read_sizes_.large_item_bytes;
  const std::uint64_t read_bytes = std::max(
      size, items_are_large ? min_read_bytes_ : read_sizes_.window_bytes);
  if (!window_.reset(std::min(read_bytes, file_.size() - offset))) {
    return no_memory_for("its heads");
  }
  window_begin_ = offset;
  return file_.read(offset, window_.all());
}

}  // namespace gristmill
