// Opens and reads what may be a tar file.
//
// The input is a byte of options and the file.  Options may ask to make the
// checksums of headers right, so that mutations meet the checks behind them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "core/files/local_file.hpp"
#include "core/tar/tar_file.hpp"
#include "core/tar/tar_sample.hpp"
#include "core/tar/tar_writer.hpp"
#include "memory_file.hpp"
#include "read_some.hpp"

namespace gristmill {
namespace {

// Every block is taken for a header that is not all of zeros.
void fix_sums(Bytes& file) {
  for (std::size_t at = 0; at + kTarBlock <= file.size(); at += kTarBlock) {
    const auto block = std::span(file).subspan(at, kTarBlock);
    if (std::ranges::any_of(block,
                            [](std::byte b) { return b != std::byte(); })) {
      sum_up(block.data());
    }
  }
}

// What was delivered can be taken apart, and no part lies outside.
void take_apart(const TarFile& file) {
  Bounded sink;
  const auto count = std::min<std::uint64_t>(file.size(), 20);
  for (std::size_t i = 0; i < count; ++i) {
    const RecordReader::Request request{static_cast<std::int64_t>(i), i};
    if (!file.read({&request, 1}, sink).ok()) continue;
    const auto parsed = TarSample::parse(sink.slots[i]);
    if (!parsed.ok()) abort();
  }
}

}  // namespace
}  // namespace gristmill

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using namespace gristmill;
  if (size < 1) return 0;
  static const MemoryFile disk;
  const std::span input(reinterpret_cast<const std::byte*>(data), size);
  const auto flags = std::to_integer<unsigned>(input[0]);
  Bytes file(input.begin() + 1, input.end());
  if ((flags & 2) != 0) fix_sums(file);
  disk.write(file);
  // Samples of what is no tar file, too.
  static_cast<void>(TarSample::parse(file).ok());
  ScanProgress progress;
  auto local = LocalFile::open(disk.path(), (flags & 1) != 0
                                                ? LocalFile::Access::kMmap
                                                : LocalFile::Access::kPread);
  auto opened = TarFile::open(std::move(local).value(), {}, progress);
  if (!opened.ok()) return 0;
  if (!read_some(*opened.value()).ok()) abort();
  take_apart(*opened.value());
  return 0;
}
