#include "core/record_reader.hpp"

#include <algorithm>

namespace gristmill {

Result<std::vector<RecordReader::Request>> RecordReader::plan(
    std::span<const std::int64_t> records) const {
  std::vector<Request> requests(records.size());
  const std::uint64_t count = size();
  for (std::size_t k = 0; k < records.size(); ++k) {
    const std::int64_t record = records[k];
    if (record < 0 || static_cast<std::uint64_t>(record) >= count) {
      return Status(Code::kOutOfRange, path() + ": record " +
                                           std::to_string(record) +
                                           " is out of range: there are " +
                                           std::to_string(count) + " records");
    }
    requests[k] = {record, k};
  }
  const auto by_record = [](const Request& left, const Request& right) {
    return left.record < right.record;
  };
  if (!std::ranges::is_sorted(requests, by_record)) {
    std::ranges::sort(requests, by_record);
  }
  return requests;
}

}  // namespace gristmill
