// Opens and reads what may be a data set of Megatron.
//
// The input is a byte of options, two of a length, that many bytes of the .idx
// file, and the .bin file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/base/varint.hpp"
#include "core/files/local_file.hpp"
#include "core/files/span_file.hpp"
#include "core/tokens/megatron_index.hpp"
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
  static const MemoryFile index_file;
  static const MemoryFile data_file;
  const std::span input(reinterpret_cast<const std::byte*>(data), size);
  const auto flags = std::to_integer<unsigned>(input[0]);
  const auto body = input.subspan(kHead);
  const auto length = std::min<std::size_t>(
      load_le<std::uint16_t>(input.data() + 1), body.size());
  index_file.write(body.first(length));
  data_file.write(body.subspan(length));
  const auto access =
      (flags & 1) != 0 ? LocalFile::Access::kMmap : LocalFile::Access::kPread;
  const auto unit = (flags & 2) != 0 ? MegatronIndex::Unit::kDocument
                                     : MegatronIndex::Unit::kSequence;
  auto index = MegatronIndex::open(open(index_file, access), unit);
  if (!index.ok()) return 0;
  const SpanFile file(open(data_file, access), std::move(index).value(),
                      "sequence");
  static_cast<void>(read_some(file).ok());
  return 0;
}
