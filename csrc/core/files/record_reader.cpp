#include "core/files/record_reader.hpp"

#include <algorithm>

namespace gristmill {

Result<std::vector<RecordReader::Request>> RecordReader::plan(
    std::span<const std::int64_t> records) const {
  std::vector<Request> requests(records.size());
  const std::uint64_t count = size();
  for (std::size_t k = 0; k < records.size(); ++k) {
    const std::int64_t record = records[k];
    if (record < 0 || static_cast<std::uint64_t>(record) >= count) {
      return Status(Code::kOutOfRange, path(), ": record ", record,
                    " is out of range: there are ", count, " records");
    }
    requests[k] = {record, k};
  }
  if (!std::ranges::is_sorted(requests, {}, &Request::record)) {
    std::ranges::sort(requests, {}, &Request::record);
  }
  return requests;
}

Result<std::shared_ptr<const RecordReader>> RecordReader::slices(
    std::span<const Slice> /*slices*/, std::uint64_t /*item_bytes*/) const {
  return Status(Code::kInvalidArgument, path(),
                ": records of this format can only be read as a whole");
}

std::vector<std::span<const RecordReader::Request>> RecordReader::cut(
    std::span<const Request> requests, std::size_t parts) const {
  std::vector<std::span<const Request>> cuts;
  for (; parts > 0 && !requests.empty(); --parts) {
    std::size_t count = (requests.size() + parts - 1) / parts;
    while (count < requests.size() &&
           shares_work(requests[count - 1].record, requests[count].record)) {
      ++count;
    }
    cuts.push_back(requests.first(count));
    requests = requests.subspan(count);
  }
  return cuts;
}

}  // namespace gristmill
