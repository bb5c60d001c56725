// What the fuzz targets do with a reader of which every byte may be wrong.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/files/record_reader.hpp"

namespace gristmill {

// Gives memory to records of up to 1 MiB.
struct Bounded final : RecordReader::Sink {
  static constexpr std::uint64_t kMaxRecord = std::uint64_t{1} << 20;

  Result<std::span<std::byte>> place(std::size_t slot,
                                     std::uint64_t size) override {
    if (size > kMaxRecord) return Status(Code::kNoMemory, "too large");
    slots[slot].resize(size);
    return std::span(slots[slot]);
  }
  std::map<std::size_t, std::vector<std::byte>> slots;
};

// Reads some records, one by one and together.  Returns what sizes() did.
inline Status read_some(const RecordReader& file) {
  Bounded sink;
  const auto last = static_cast<std::int64_t>(file.size()) - 1;
  std::vector<std::int64_t> records;
  for (std::int64_t i = 0; i <= std::min<std::int64_t>(last, 15); ++i) {
    records.push_back(i);
  }
  if (last > 15) records.push_back(last);
  auto planned = file.plan(records);
  if (!planned.ok()) abort();
  const auto requests = std::move(planned).value();
  for (const auto& request : requests) {
    static_cast<void>(file.read(std::span(&request, 1), sink).ok());
  }
  static_cast<void>(file.read(requests, sink).ok());
  std::vector<std::int64_t> sizes(records.size());
  return file.sizes(requests, sizes);
}

}  // namespace gristmill
