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
#include <vector>

#include "core/base/varint.hpp"
#include "core/files/local_file.hpp"
#include "core/files/span_file.hpp"
#include "core/tokens/megatron_index.hpp"
#include "memory_file.hpp"
#include "read_some.hpp"

namespace gristmill {
namespace {

constexpr std::size_t kHead = 3;
constexpr std::uint64_t kMaxSliced = 64;

File::Ptr open(const MemoryFile& file, LocalFile::Access access) {
  return LocalFile::open(file.path(), access).value();
}

// Reads the second half of each record, and maps it if the file is mapped.
void read_halves(const SpanFile& file) {
  std::vector<std::int64_t> lengths(file.size());
  static_cast<void>(file.lengths(1, 0, lengths).ok());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const RecordReader::Slice half{static_cast<std::int64_t>(i), lengths[i] / 2,
                                   lengths[i]};
    auto slices = file.slices(std::span(&half, 1), 1);
    if (!slices.ok()) continue;
    static_cast<void>(read_some(*slices.value()).ok());
    const RecordReader::Request first;
    RecordReader::View view;
    if (!slices.value()->has_views()) continue;
    if (!slices.value()
             ->views(std::span(&first, 1), std::span(&view, 1))
             .ok()) {
      continue;
    }
    std::vector<std::byte> copy(view.bytes.begin(), view.bytes.end());
  }
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
  if (file.size() <= kMaxSliced) read_halves(file);
  return 0;
}
