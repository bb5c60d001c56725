// Opens and reads what may be an ArrayRecord file, with hashes off.
//
// The input is short: two bytes of options, four of a length, that many bytes
// from which the file starts, and the bytes of its last block, where the
// postscript is; zeros fill the gap.  Offsets in the input are those of a real
// file, so that mutations meet the checks behind them.
#include "core/array_record/record_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/files/local_file.hpp"
#include "read_some.hpp"

namespace gristmill {
namespace {

constexpr std::size_t kHead = 6;

std::vector<std::byte> expand(std::span<const std::byte> input) {
  std::uint32_t length = 0;
  std::memcpy(&length, input.data() + 2, sizeof length);
  const auto body = input.subspan(kHead);
  const auto front = body.first(std::min<std::size_t>(length, body.size()));
  const auto back = body.subspan(front.size());
  const auto last = back.first(std::min<std::size_t>(back.size(), kBlockBytes));
  const std::size_t blocks = (front.size() + kBlockBytes - 1) / kBlockBytes;
  std::vector<std::byte> file((blocks + 1) * kBlockBytes);
  std::ranges::copy(front, file.begin());
  std::ranges::copy(last,
                    file.end() - static_cast<std::ptrdiff_t>(kBlockBytes));
  return file;
}

}  // namespace
}  // namespace gristmill

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using namespace gristmill;
  if (size < kHead) return 0;
  static const int fd = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const std::span input(reinterpret_cast<const std::byte*>(data), size);
  const auto file = expand(input);
  if (ftruncate(fd, 0) != 0 || pwrite(fd, file.data(), file.size(), 0) !=
                                   static_cast<ssize_t>(file.size())) {
    abort();
  }
  const auto flags = std::to_integer<unsigned>(input[0]);
  const RecordFile::Options options{
      (flags & 2) != 0 ? Verify::kAll : Verify::kNone,
      std::make_shared<ChunkCache>(std::size_t{1} << 20)};
  const auto access =
      (flags & 1) != 0 ? LocalFile::Access::kMmap : LocalFile::Access::kPread;
  const auto count =
      RecordFile::count(*LocalFile::open(path, access).take(), options.verify);
  auto opened = RecordFile::open(LocalFile::open(path, access).take(), options);
  if (!opened.ok()) return 0;
  // A file that can be read can be counted.
  if (!count.ok()) abort();
  static_cast<void>(read_some(*opened.value()).ok());
  return 0;
}
