#include "core/files/head_reader.hpp"

#include <algorithm>
#include <cerrno>

#include "core/files/verify.hpp"

namespace gristmill {

HeadReader::HeadReader(const File& file, std::uint64_t glance,
                       ScanProgress& progress)
    : file_(file),
      glance_(glance),
      steps_(file.hints().parallel > 1 ? kFarSteps : kNearSteps),
      progress_(progress) {}

Result<std::span<const std::byte>> HeadReader::read(std::uint64_t at,
                                                    std::uint64_t size,
                                                    std::uint64_t items) {
  if (at < begin_ || at + size > begin_ + window_.all().size()) {
    TRY(move(at, size, items));
  }
  return std::span<const std::byte>(window_.all())
      .subspan(static_cast<std::size_t>(at - begin_),
               static_cast<std::size_t>(size));
}

Status HeadReader::move(std::uint64_t at, std::uint64_t size,
                        std::uint64_t items) {
  progress_.done_bytes.store(at, std::memory_order_relaxed);
  if (progress_.cancelled.load(std::memory_order_relaxed)) {
    return Status::system(ECANCELED, "indexing was cancelled");
  }
  const bool large = items > 0 && at / items > steps_.large_item;
  const std::uint64_t wanted = std::max(size, large ? glance_ : steps_.window);
  if (!window_.reset(std::min(wanted, file_.size() - at))) {
    return no_memory_for("its heads");
  }
  begin_ = at;
  return file_.read(at, window_.all());
}

}  // namespace gristmill
