// Opens and reads what may be a text file, plain or compressed.
//
// The input is a byte of options and the file.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/files/local_file.hpp"
#include "core/lines/line_file.hpp"
#include "memory_file.hpp"
#include "read_some.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using namespace gristmill;
  if (size < 1) return 0;
  static const MemoryFile text_file;
  const std::span input(reinterpret_cast<const std::byte*>(data), size);
  const auto flags = std::to_integer<unsigned>(input[0]);
  text_file.write(input.subspan(1));
  const auto access =
      (flags & 1) != 0 ? LocalFile::Access::kMmap : LocalFile::Access::kPread;
  const std::size_t cache_bytes = (flags & 2) != 0 ? 1 << 20 : 0;
  ScanProgress progress;
  auto file =
      open_line_file(LocalFile::open(text_file.path(), access).value(), {},
                     std::make_shared<ChunkCache>(cache_bytes), progress);
  if (!file.ok()) return 0;
  // The file was decompressed when it was scanned, so reading must succeed.
  if (!read_some(*file.value()).ok()) abort();
  return 0;
}
