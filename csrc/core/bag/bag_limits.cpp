#include "core/bag/bag_limits.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "core/base/byte_buffer.hpp"
#include "core/base/varint.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

constexpr std::uint64_t kLimitBytes = sizeof(std::uint64_t);

// The number of limits in one read.
constexpr std::uint64_t kWindowLimits = std::uint64_t{1} << 17;

constexpr const char* kHint =
    ": it is not a Bagz file, is still being written, or was not copied whole";

}  // namespace

Result<BagLimits::Section> BagLimits::find_section(const File& records,
                                                   const File* limits_file) {
  if (limits_file != nullptr) {
    const std::uint64_t size = limits_file->size();
    if (size % kLimitBytes != 0) {
      return damaged("the file has ", size, " bytes, expected a multiple of 8",
                     kHint);
    }
    return Section{limits_file, 0, size / kLimitBytes, records.size()};
  }
  const std::uint64_t size = records.size();
  if (size == 0) return Section{&records, 0, 0, 0};
  if (size < kLimitBytes) {
    return damaged("the file has ", size, " bytes, expected at least 8", kHint);
  }
  std::array<std::byte, kLimitBytes> bytes;
  TRY(records.read(size - kLimitBytes, bytes));
  const auto begin = load_le<std::uint64_t>(bytes.data());
  if (begin > size - kLimitBytes || (size - begin) % kLimitBytes != 0) {
    return damaged("its last 8 bytes place its limits at offset ", begin,
                   " of ", size,
                   ", expected a multiple of 8 bytes before the end", kHint);
  }
  return Section{&records, begin, (size - begin) / kLimitBytes, begin};
}

Result<std::uint64_t> BagLimits::count(const File& records,
                                       const File* limits_file) {
  return TRY(find_section(records, limits_file)).count;
}

Result<BagLimits> BagLimits::read(const File& records,
                                  const File* limits_file) {
  const Section section = TRY(find_section(records, limits_file));
  BagLimits limits;
  ByteBuffer window;
  std::uint64_t end = 0;  // The end of the previous record.
  for (std::uint64_t i = 0; i < section.count; i += kWindowLimits) {
    const std::uint64_t count = std::min(kWindowLimits, section.count - i);
    if (!window.reset(count * kLimitBytes)) return no_memory_for("its limits");
    TRY(section.file->read(section.begin + i * kLimitBytes, window.all()));
    for (std::uint64_t k = 0; k < count; ++k) {
      const auto limit =
          load_le<std::uint64_t>(window.all().data() + k * kLimitBytes);
      if (limit < end || limit > section.max_limit) {
        return damaged("the limit of record ", i + k, " is ", limit,
                       ", expected one from ", end, " to ", section.max_limit,
                       kHint);
      }
      limits.places_.add(end, 0);  // Sizes follow from the limits.
      end = limit;
    }
  }
  limits.places_.finish(end);
  return limits;
}

}  // namespace gristmill
