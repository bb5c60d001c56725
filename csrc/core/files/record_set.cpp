#include "core/files/record_set.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/at_fork.hpp"

namespace gristmill {

using ReaderPtr = std::shared_ptr<const RecordReader>;

Mutex RecordSet::readers_mutex_;
const bool RecordSet::kHeldAtFork =
    at_fork(ForkStep::kRecordReaders, held_at_fork<readers_mutex_>());

RecordSet::RecordSet(std::string name, std::span<const Range> ranges)
    : name_(std::move(name)),
      ranges_(ranges.begin(), ranges.end()),
      readers_(ranges.size()) {
  begins_.reserve(ranges.size() + 1);
  begins_.push_back(0);
  for (const Range& range : ranges) {
    begins_.push_back(begins_.back() + range.count);
  }
}

RecordSet::Location RecordSet::locate(std::int64_t record) const {
  const auto record_in_set = static_cast<std::uint64_t>(record);
  const auto next = std::ranges::upper_bound(begins_, record_in_set);
  const auto part = static_cast<std::size_t>(next - begins_.begin()) - 1;
  return {part, static_cast<std::int64_t>(record_in_set - begins_[part] +
                                          ranges_[part].first)};
}

ReaderPtr RecordSet::reader(std::size_t part) const {
  const MutexLock lock(readers_mutex_);
  return readers_[part];
}

std::vector<std::size_t> RecordSet::closed_parts(
    std::span<const Request> requests) const {
  std::vector<std::size_t> closed;
  const MutexLock lock(readers_mutex_);
  std::uint64_t end = 0;  // The end of the part that was checked last.
  for (const Request& request : requests) {
    if (static_cast<std::uint64_t>(request.record) < end) continue;
    const std::size_t part = locate(request.record).part;
    end = begins_[part + 1];
    if (!readers_[part]) closed.push_back(part);
  }
  return closed;
}

Status RecordSet::open_part(std::size_t part, ReaderPtr reader) {
  const Range& range = ranges_[part];
  if (range.first + range.count > reader->size()) {
    return Status(Code::kOutOfRange, reader->path(), ": expected records ",
                  range.first, " to ", range.first + range.count, ", found ",
                  reader->size(), " records");
  }
  const MutexLock lock(readers_mutex_);
  if (!readers_[part]) readers_[part] = std::move(reader);
  return {};
}

void RecordSet::close_parts() {
  // The readers are destroyed after the lock is released, because a reader may
  // be a Python object.
  std::vector<ReaderPtr> closed(ranges_.size());
  const MutexLock lock(readers_mutex_);
  readers_.swap(closed);
}

bool RecordSet::knows_sizes() const {
  const MutexLock lock(readers_mutex_);
  return std::ranges::all_of(readers_, [](const ReaderPtr& reader) {
    return reader == nullptr || reader->knows_sizes();
  });
}

bool RecordSet::shares_work(std::int64_t left, std::int64_t right) const {
  const Location first = locate(left);
  const Location second = locate(right);
  if (first.part != second.part) return false;
  const ReaderPtr part_reader = reader(first.part);
  return part_reader && part_reader->shares_work(first.record, second.record);
}

std::size_t RecordSet::parallel() const {
  const MutexLock lock(readers_mutex_);
  std::size_t max_parallel = 1;
  for (const ReaderPtr& reader : readers_) {
    if (reader) max_parallel = std::max(max_parallel, reader->parallel());
  }
  return max_parallel;
}

bool RecordSet::fetches() const {
  const MutexLock lock(readers_mutex_);
  bool any = false;
  for (const ReaderPtr& reader : readers_) {
    if (!reader) continue;
    if (!reader->fetches()) return false;
    any = true;
  }
  return any;
}

// Calls `each(reader, requests)` for each part, with record numbers relative to
// its reader.
template <class Each>
Status RecordSet::each_part(std::span<const Request> requests,
                            Each&& each) const {
  std::vector<Request> local;
  while (!requests.empty()) {
    const std::size_t part = locate(requests.front().record).part;
    const std::uint64_t end = begins_[part + 1];
    const std::int64_t shift = static_cast<std::int64_t>(ranges_[part].first) -
                               static_cast<std::int64_t>(begins_[part]);
    local.clear();
    for (const Request& request : requests) {
      if (static_cast<std::uint64_t>(request.record) >= end) break;
      local.push_back({request.record + shift, request.slot});
    }
    const ReaderPtr part_reader = reader(part);
    if (!part_reader) {
      return Status::system(EBADF, name_, ": it was closed while it was read");
    }
    TRY(each(part_reader, std::span<const Request>(local)));
    requests = requests.subspan(local.size());
  }
  return {};
}

Status RecordSet::sizes(std::span<const Request> requests,
                        std::span<std::int64_t> sizes) const {
  return each_part(requests, [&](const ReaderPtr& part, auto local) {
    return part->sizes(local, sizes);
  });
}

Status RecordSet::add_runs(std::span<const Request> requests,
                           std::vector<Run>& runs) const {
  return each_part(requests, [&](const ReaderPtr& part, auto local) {
    const std::size_t before = runs.size();
    TRY(part->add_runs(local, runs));
    for (std::size_t k = before; k < runs.size(); ++k) {
      if (!runs[k].owner) runs[k].owner = part;
    }
    return Status();
  });
}

Status RecordSet::read(std::span<const Request> requests, Sink& sink) const {
  return each_part(requests, [&](const ReaderPtr& part, auto local) {
    return part->read(local, sink);
  });
}

}  // namespace gristmill
