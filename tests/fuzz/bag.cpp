// Opens and reads what may be a Bagz file.
//
// The input is a byte of options, two of a length, that many bytes of a file of
// limits, which the options may leave out, and the file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>

#include "core/bag/bag_file.hpp"
#include "core/base/varint.hpp"
#include "core/files/local_file.hpp"
#include "memory_file.hpp"
#include "read_some.hpp"

namespace gristmill {
namespace {

constexpr std::size_t kHead = 3;

File::Ptr open(const MemoryFile& file, LocalFile::Access access) {
  return LocalFile::open(file.path(), access).value();
}

}  // namespace
}  // namespace gristmill

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using namespace gristmill;
  if (size < kHead) return 0;
  static const MemoryFile data_file;
  static const MemoryFile limits_file;
  const std::span input(reinterpret_cast<const std::byte*>(data), size);
  const auto flags = std::to_integer<unsigned>(input[0]);
  const auto body = input.subspan(kHead);
  const auto length = std::min<std::size_t>(
      load_le<std::uint16_t>(input.data() + 1), body.size());
  limits_file.write(body.first(length));
  data_file.write(body.subspan(length));
  const auto access =
      (flags & 1) != 0 ? LocalFile::Access::kMmap : LocalFile::Access::kPread;
  const auto limits = [&] {
    return (flags & 2) != 0 ? open(limits_file, access) : nullptr;
  };
  const bool compressed = (flags & 4) != 0;
  const auto separate = limits();
  const auto counted =
      BagLimits::count(*open(data_file, access), separate.get());
  auto opened = BagFile::open(open(data_file, access), {limits(), compressed});
  if (!opened.ok()) return 0;
  const BagFile& file = *opened.value();
  if (!counted.ok() || Result(counted).value() != file.size()) abort();
  if (!read_some(file).ok() && !compressed) abort();
  return 0;
}
