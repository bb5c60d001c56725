#include "core/files/record_lengths.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/highway_hash.hpp"
#include "core/files/file_stamp.hpp"

namespace gristmill {
namespace {

// The key of the hash that identifies the parts.
constexpr HighwayHash::Key kKey{0x31636572, 0, 0, 0};  // "rec1"

constexpr std::size_t kBlockRecords = 4096;

std::uint64_t hash_of(std::span<const RecordPart> parts,
                      std::uint64_t item_bytes) {
  std::vector<std::uint64_t> fields{item_bytes};
  for (const RecordPart& part : parts) {
    const auto stamp = FileStamp::of(part.file->file());
    fields.insert(fields.end(), {stamp.size, stamp.version, part.records,
                                 part.file->index().rule()});
  }
  return HighwayHash::of(kKey, std::as_bytes(std::span(fields)));
}

// Copies the lengths of the records of a part.  Fails with kOverflow if a
// length does not fit into Number.
template <class Number>
Status copy_lengths(const RecordPart& part, std::uint64_t item_bytes,
                    std::span<Number> to) {
  std::array<std::int64_t, kBlockRecords> lengths;
  for (std::size_t first = 0; first < to.size();) {
    const auto block =
        std::span(lengths).first(std::min(to.size() - first, kBlockRecords));
    TRY(part.file->lengths(item_bytes, first, block));
    for (const auto length : block) {
      if (length > std::numeric_limits<Number>::max()) {
        return {Code::kOverflow, "a record has ", length, " items"};
      }
      to[first++] = static_cast<Number>(length);
    }
  }
  return {};
}

template <class Number>
Result<RecordLengths> lengths_as(std::span<const RecordPart> parts,
                                 std::uint64_t item_bytes,
                                 const ArrayFile::Place& place) {
  std::uint64_t records = 0;
  for (const RecordPart& part : parts) records += part.records;
  const auto build = [&](const auto& to) -> Status {
    std::span all(reinterpret_cast<Number*>(to[0].data()), records);
    for (const RecordPart& part : parts) {
      const auto own = all.first(part.records);
      all = all.subspan(part.records);
      const auto listed = part.file->index().listed_lengths();
      if (sizeof(Number) == 4 && !listed.empty()) {
        std::memcpy(own.data(), listed.data(), own.size_bytes());
      } else {
        TRY(copy_lengths(part, item_bytes, own));
      }
    }
    return {};
  };
  ArrayFile arrays = TRY(ArrayFile::load_or_build(
      place, {records * sizeof(Number), 0, 0, 0}, build));
  return RecordLengths{std::move(arrays), sizeof(Number)};
}

}  // namespace

Result<RecordLengths> record_lengths(
    std::span<const RecordPart> parts, std::uint64_t item_bytes,
    const std::vector<std::string>& index_paths) {
  // One process builds while the others wait.  The lock is not that of the
  // data, because an index of rows may be built while the lengths are saved.
  const std::string lock_path =
      parts.empty() ? "" : parts.front().file->index().path();
  const ArrayFile::Place place{hash_of(parts, item_bytes), index_paths,
                               lock_path};
  auto narrow = lengths_as<std::int32_t>(parts, item_bytes, place);
  if (narrow.ok() || narrow.status().code() != Code::kOverflow) return narrow;
  return lengths_as<std::int64_t>(parts, item_bytes, place);
}

}  // namespace gristmill
