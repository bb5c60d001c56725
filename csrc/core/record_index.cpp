#include "core/record_index.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/footer.hpp"
#include "core/varint.hpp"

namespace gristmill {
namespace {

constexpr std::uint64_t kMinFileBytes = 2 * kBlockBytes;
constexpr std::uint64_t kMagic = 0x71930e704fdae05e;
constexpr std::uint8_t kSimple = 'r';

// Of the postscript; it takes about 150.
constexpr std::size_t kPostscriptBytes = 1024;

// How much of a footer is read at once.
constexpr std::size_t kReadBytes = 4 * kBlockBytes;

Status damaged(std::string what) {
  return Status(Code::kInvalidArgument, std::move(what));
}

Status within(const char* part, const Status& status) {
  if (status.ok() || status.code() == Code::kSystem) return status;
  return Status(status.code(), std::string(part) + status.message());
}

// Gets bytes of a file: where they are mapped, or into `buffer`.
Result<RawBytes> fetch(const File& file, std::uint64_t offset,
                       std::size_t count, std::span<std::byte> buffer) {
  const auto mapped = file.mapped();
  if (!mapped.empty()) {
    return RawBytes{offset, mapped.subspan(offset, count)};
  }
  Status status = file.read(offset, buffer.first(count));
  if (!status.ok()) return status;
  return RawBytes{offset, buffer.first(count)};
}

Status check_size(std::uint64_t size) {
  if (size >= kMinFileBytes && size % kBlockBytes == 0) return {};
  return damaged("the file has " + std::to_string(size) +
                 " bytes, expected a multiple of 65536 and at least 131072: it "
                 "is no ArrayRecord file, or it was truncated or not closed by "
                 "its writer");
}

// Returns where the footer is.
Result<std::uint64_t> read_postscript(const File& file, Verify verify) {
  const std::uint64_t offset = file.size() - kBlockBytes;
  std::array<std::byte, kPostscriptBytes> buffer;
  auto raw = fetch(file, offset, buffer.size(), buffer);
  if (!raw.ok()) return raw.status();
  ChunkView chunk;
  Status status = chunk.open(raw.value(), raw.value().end(), verify);
  if (!status.ok()) return status;
  DecodedChunk decoded;
  ByteBuffer spare;
  status = chunk.decode(decoded, spare);
  if (!status.ok()) return status;
  if (decoded.count() == 0) return chunk.placed(damaged("it is empty"));
  ByteCursor cursor(decoded.record(0));
  std::uint64_t footer = 0;
  std::uint64_t magic = 0;
  std::uint64_t tag = 0;
  std::uint64_t value = 0;
  while (cursor.left() > 0) {
    if (!cursor.varint(tag) || !cursor.varint(value)) {
      return chunk.placed(damaged("it is not readable"));
    }
    if (tag == 1 * 8) footer = value;
    if (tag == 2 * 8) magic = value;
  }
  if (magic != kMagic) {
    return chunk.placed(damaged("its magic number is " + hex(magic) +
                                ", expected " + hex(kMagic)));
  }
  if (footer < 64 || footer >= offset) {
    return chunk.placed(
        damaged("it puts the footer at offset " + std::to_string(footer) +
                ", expected one from 64 to " + std::to_string(offset - 1)));
  }
  return footer;
}

// Reads the data of the footer piece by piece.
Status read_data(const File& file, const ChunkView& chunk, Verify verify,
                 FooterParser& parser) {
  std::vector<std::byte> buffer(file.mapped().empty() ? kReadBytes : 0);
  HighwayHash hash(kRiegeliKey);
  for (std::uint64_t at = chunk.data_begin(); at < chunk.data_end();) {
    const std::uint64_t end =
        std::min(chunk.data_end(), (at / kReadBytes + 1) * kReadBytes);
    auto raw = fetch(file, at, end - at, buffer);
    if (!raw.ok()) return raw.status();
    BlockWalk walk(raw.value(), verify);
    for (;;) {
      const auto piece = walk.next(kReadBytes);
      if (!walk.status().ok()) return walk.status();
      if (piece.empty()) break;
      if (verify != Verify::kNone) hash.append(piece);
      Status status = parser.feed(piece);
      if (!status.ok()) return status;
    }
    at = end;
  }
  if (verify != Verify::kNone && hash.value() != chunk.header().data_hash) {
    return damaged("the hash of its data is " + hex(hash.value()) +
                   ", expected " + hex(chunk.header().data_hash));
  }
  return parser.finish();
}

}  // namespace

Result<RecordIndex> RecordIndex::read(const File& file, Verify verify) {
  Status status = check_size(file.size());
  if (!status.ok()) return status;
  auto found = read_postscript(file, verify);
  if (!found.ok()) return within("postscript: ", found.status());
  const std::uint64_t offset = found.value();
  const std::uint64_t limit = file.size() - kBlockBytes;
  std::array<std::byte, kChunkHeaderBytes + 2 * kBlockHeaderBytes> buffer;
  auto raw =
      fetch(file, offset,
            std::min<std::uint64_t>(buffer.size(), limit - offset), buffer);
  if (!raw.ok()) return raw.status();
  ChunkView chunk;
  status = chunk.open(raw.value(), limit, verify);
  if (!status.ok()) return within("footer: ", status);
  if (chunk.header().type != kSimple) {
    return within("footer: ", chunk.placed(damaged("its type is " +
                                                   hex(chunk.header().type) +
                                                   ", expected 'r'")));
  }
  RecordIndex index;
  FooterParser parser(chunk.header(), offset, index);
  status = read_data(file, chunk, verify, parser);
  if (!status.ok()) return within("footer: ", chunk.placed(status));
  return index;
}

}  // namespace gristmill
