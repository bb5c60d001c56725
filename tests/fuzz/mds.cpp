// Opens and reads what may be a shard of MosaicML Streaming.
//
// The input is a byte of options, two of the number of samples in index.json,
// and the shard.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/base/varint.hpp"
#include "core/files/local_file.hpp"
#include "core/files/span_file.hpp"
#include "core/mds/mds_index.hpp"
#include "memory_file.hpp"
#include "read_some.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using namespace gristmill;
  constexpr std::size_t kHead = 3;
  if (size < kHead) return 0;
  static const MemoryFile memory;
  const std::span input(reinterpret_cast<const std::byte*>(data), size);
  const auto shard = input.subspan(kHead);
  memory.write(shard);
  const auto access =
      (data[0] & 1) != 0 ? LocalFile::Access::kMmap : LocalFile::Access::kPread;
  const auto open = [&] {
    return LocalFile::open(memory.path(), access).value();
  };
  const auto samples = load_le<std::uint16_t>(input.data() + 1);
  auto index = MdsIndex::open(open(), {samples, shard.size()});
  if (!index.ok()) return 0;
  const SpanFile file(open(), std::move(index).value(), "sample");
  static_cast<void>(read_some(file).ok());
  return 0;
}
