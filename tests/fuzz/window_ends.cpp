// Parses what may be the file of a packing plan.
//
// The input is the file.  Its key and its checksum are corrected first, because
// random bytes would hardly ever pass these checks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/crc32c.hpp"
#include "core/packing/window_ends_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  constexpr std::uint64_t kKey = 7;
  constexpr std::size_t kChecksum = 12;
  constexpr std::size_t kKeyBegin = 16;
  std::vector<std::byte> file(size);
  std::memcpy(file.data(), data, size);
  if (size >= kKeyBegin + sizeof kKey) {
    std::memcpy(file.data() + kKeyBegin, &kKey, sizeof kKey);
    const auto checksum = gristmill::crc32c(std::span(file).subspan(kKeyBegin));
    std::memcpy(file.data() + kChecksum, &checksum, sizeof checksum);
  }
  auto ends = gristmill::parse_window_ends(file, kKey);
  if (ends.ok() && !std::ranges::is_sorted(ends.value())) __builtin_trap();
  return 0;
}
