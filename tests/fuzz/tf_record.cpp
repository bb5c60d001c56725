// Opens and reads what may be a TFRecord file and its index, and parses the
// file as a stream.
//
// The input is a byte of options, two of a length, that many bytes of an
// index, and the file.  Options may ask to make the checksums and the stamp
// right, so that mutations meet the checks behind them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "core/base/crc32c.hpp"
#include "core/base/varint.hpp"
#include "core/files/file_stamp.hpp"
#include "core/files/local_file.hpp"
#include "core/tf_record/tf_record_file.hpp"
#include "core/tf_record/tf_record_frame.hpp"
#include "core/tf_record/tf_record_parser.hpp"
#include "memory_file.hpp"
#include "read_some.hpp"

namespace gristmill {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kHead = 3;
constexpr FileStamp kStamp{0, MemoryFile::kVersion};

template <class T>
void store(Bytes& to, std::size_t at, T value) {
  if (at + sizeof value > to.size()) return;
  std::memcpy(to.data() + at, &value, sizeof value);
}

// Makes the checksums of lengths right, as far as the lengths lead.
void fix_heads(Bytes& file) {
  std::size_t at = 0;
  while (file.size() - at >= kFrameHead) {
    const auto length = std::span(file).subspan(at, sizeof(std::uint64_t));
    store(file, at + length.size(), frame_checksum(length));
    const auto size = load_le<std::uint64_t>(length.data());
    if (size > file.size() - at || file.size() - at - size < kFrameBytes) break;
    at += kFrameBytes + static_cast<std::size_t>(size);
  }
}

void fix_index(Bytes& index, const FileStamp& stamp) {
  store(index, 16, stamp.size);
  store(index, 24, stamp.version);
  if (index.size() < 16) return;
  store(index, 12, crc32c(std::span(index).subspan(16)));
}

// No record leads out of the file.
void check_places(const TfRecordIndex& index, const FileStamp& stamp) {
  for (std::uint64_t i = 0; i < index.size(); ++i) {
    const auto place = index.place(i);
    if (place.begin > place.end || place.end > stamp.size) abort();
  }
}

std::uint64_t parse(std::span<const std::byte> bytes, Verify verify) {
  TfRecordParser parser(verify, 0, 0);
  for (;;) {
    auto ready = parser.has_complete_record();
    if (!ready.ok()) break;
    if (ready.value()) {
      static_cast<void>(parser.take_record().ok());
      continue;
    }
    if (bytes.empty()) break;
    const auto room = parser.free_space().value();
    const std::size_t count =
        std::min({room.size(), bytes.size(), std::size_t{777}});
    std::ranges::copy(bytes.first(count), room.begin());
    parser.add_received(count);
    bytes = bytes.subspan(count);
  }
  static_cast<void>(parser.check_end().ok());
  return parser.record();
}

}  // namespace
}  // namespace gristmill

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using namespace gristmill;
  if (size < kHead) return 0;
  static const MemoryFile data_file;
  static const MemoryFile index_file;
  const std::span input(reinterpret_cast<const std::byte*>(data), size);
  const auto flags = std::to_integer<unsigned>(input[0]);
  const auto body = input.subspan(kHead);
  const auto length = std::min<std::size_t>(
      load_le<std::uint16_t>(input.data() + 1), body.size());
  Bytes index(body.begin(), body.begin() + static_cast<long>(length));
  Bytes file(body.begin() + static_cast<long>(length), body.end());
  const FileStamp stamp{file.size(), kStamp.version};
  if ((flags & 8) != 0) fix_heads(file);
  if ((flags & 16) != 0) fix_index(index, stamp);
  data_file.write(file);
  index_file.write(index);
  const Verify verify = (flags & 2) != 0   ? Verify::kAll
                        : (flags & 4) != 0 ? Verify::kHeaders
                                           : Verify::kNone;
  const TfRecordFile::Options options{verify, {index_file.path()}};
  ScanProgress progress;
  auto local = LocalFile::open(
      data_file.path(),
      (flags & 1) != 0 ? LocalFile::Access::kMmap : LocalFile::Access::kPread);
  auto opened = TfRecordFile::open(std::move(local).value(), options, progress);
  const std::uint64_t parsed = parse(file, verify);
  if (opened.ok()) {
    const TfRecordFile& found = *opened.value();
    if (!read_some(found).ok()) abort();
    check_places(found.index(), stamp);
    if (found.index().path().empty() && found.size() != parsed) abort();
  }
  return 0;
}
