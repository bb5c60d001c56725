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

// Returns true if there are open readers and `predicate` is true for each.
template <class Predicate>
bool RecordSet::all_readers(Predicate&& predicate) const {
  const MutexLock lock(readers_mutex_);
  bool any = false;
  for (const ReaderPtr& reader : readers_) {
    if (!reader) continue;
    if (!predicate(*reader)) return false;
    any = true;
  }
  return any;
}

bool RecordSet::fetches() const {
  return all_readers([](const RecordReader& r) { return r.fetches(); });
}

bool RecordSet::has_views() const {
  return all_readers([](const RecordReader& r) { return r.has_views(); });
}

// Calls `each(reader, items)` for each part.  The items, requests or slices,
// then have record numbers relative to the reader.
template <class Item, class Each>
Status RecordSet::each_part(std::span<const Item> items, Each&& each) const {
  std::vector<Item> local;
  while (!items.empty()) {
    const std::size_t part = locate(items.front().record).part;
    const std::uint64_t end = begins_[part + 1];
    const std::int64_t shift = static_cast<std::int64_t>(ranges_[part].first) -
                               static_cast<std::int64_t>(begins_[part]);
    local.clear();
    for (const Item& item : items) {
      if (static_cast<std::uint64_t>(item.record) >= end) break;
      local.push_back(item);
      local.back().record += shift;
    }
    const ReaderPtr part_reader = reader(part);
    if (!part_reader) {
      return Status::system(EBADF, name_, ": it was closed while it was read");
    }
    TRY(each(part_reader, std::span<const Item>(local)));
    items = items.subspan(local.size());
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

Status RecordSet::views(std::span<const Request> requests,
                        std::span<View> views) const {
  return each_part(requests, [&](const ReaderPtr& part, auto local) {
    return part->views(local, views);
  });
}

Result<ReaderPtr> RecordSet::slices(std::span<const Slice> slices,
                                    std::uint64_t item_bytes) const {
  std::vector<ReaderPtr> readers;
  std::vector<Range> ranges;
  const auto add_part = [&](const ReaderPtr& part, auto local) {
    readers.push_back(TRY(part->slices(local, item_bytes)));
    ranges.push_back({0, local.size()});
    return Status();
  };
  TRY(each_part(slices, add_part));
  if (readers.size() == 1) return readers.front();
  auto set = std::make_shared<RecordSet>(name_, ranges);
  for (std::size_t k = 0; k < readers.size(); ++k) {
    TRY(set->open_part(k, readers[k]));
  }
  return ReaderPtr(std::move(set));
}

}  // namespace gristmill
