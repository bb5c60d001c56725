#include "core/array_record/record_index.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/array_record/footer.hpp"
#include "core/base/varint.hpp"

namespace gristmill {
namespace {

constexpr std::uint64_t kMinFileBytes = 2 * kBlockBytes;
constexpr std::uint64_t kMagic = 0x71930e704fdae05e;
constexpr std::uint8_t kSimple = 'r';

// Of the postscript; it takes about 150.
constexpr std::size_t kPostscriptBytes = 1024;

constexpr std::uint64_t kMostHeader = kChunkHeaderBytes + 2 * kBlockHeaderBytes;

// How much of a footer is taken at once.
constexpr std::size_t kReadBytes = 4 * kBlockBytes;

// How much of a footer is read at once where each read takes long.
constexpr std::uint64_t kMostAhead = std::uint64_t{64} << 20;

Status damaged(std::string what) {
  return Status(Code::kInvalidArgument, std::move(what));
}

Status within(const char* part, const Status& status) {
  if (status.ok() || status.is_external()) return status;
  return Status(status.code(), std::string(part) + status.message());
}

// The end of a file, of which parts are wanted again and again: mapped, or read
// as far ahead as the file likes.
class Tail {
 public:
  explicit Tail(const File& file) : file_(file) {}

  // Returns the bytes [offset, offset + count), valid until the next call.
  // REQUIRES: they lie in the file.
  Result<RawBytes> fetch(std::uint64_t offset, std::uint64_t count) {
    const auto mapped = file_.mapped();
    if (!mapped.empty()) return RawBytes{offset, mapped.subspan(offset, count)};
    if (offset < begin_ || offset + count > end_) {
      Status status = read(offset, count);
      if (!status.ok()) return status;
    }
    return RawBytes{offset, std::span<const std::byte>(bytes_).subspan(
                                offset - begin_, count)};
  }

 private:
  // Makes [begin_, end_) a range that has `offset` and what follows.  What was
  // read of the end stays if the range before it is not too long.
  Status read(std::uint64_t offset, std::uint64_t count) {
    const std::uint64_t ahead = file_.hints().tail_bytes;
    std::uint64_t begin = offset;
    std::uint64_t end = offset + count;
    std::vector<std::byte> kept;
    if (ahead > 0 && bytes_.empty()) {
      begin = std::min(offset, file_.size() - std::min(ahead, file_.size()));
      end = file_.size();
    } else if (ahead > 0) {
      end = std::min(std::max(end, offset + kMostAhead), file_.size());
      if (offset < begin_ && end >= begin_) {
        end = begin_;
        kept = std::move(bytes_);
      }
    }
    bytes_.resize(end - begin);
    begin_ = begin;
    end_ = end;
    Status status = file_.read(begin, bytes_);
    if (!status.ok()) return status;
    bytes_.insert(bytes_.end(), kept.begin(), kept.end());
    end_ += kept.size();
    return {};
  }

  const File& file_;
  std::vector<std::byte> bytes_;  // [begin_, end_) of the file.
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

Status check_size(std::uint64_t size) {
  if (size >= kMinFileBytes && size % kBlockBytes == 0) return {};
  return damaged("the file has " + std::to_string(size) +
                 " bytes, expected a multiple of 65536 and at least 131072: it "
                 "is no ArrayRecord file, or it was truncated or not closed by "
                 "its writer");
}

// Returns where the footer is.
Result<std::uint64_t> read_postscript(Tail& tail, std::uint64_t offset,
                                      Verify verify) {
  auto raw = tail.fetch(offset, kPostscriptBytes);
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
Status read_data(Tail& tail, const ChunkView& chunk, Verify verify,
                 FooterParser& parser) {
  HighwayHash hash(kRiegeliKey);
  for (std::uint64_t at = chunk.data_begin(); at < chunk.data_end();) {
    const std::uint64_t end =
        std::min(chunk.data_end(), (at / kReadBytes + 1) * kReadBytes);
    auto raw = tail.fetch(at, end - at);
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
  const std::uint64_t limit = file.size() - kBlockBytes;
  Tail tail(file);
  auto found = read_postscript(tail, limit, verify);
  if (!found.ok()) return within("postscript: ", found.status());
  const std::uint64_t offset = found.value();
  auto raw = tail.fetch(offset, std::min(kMostHeader, limit - offset));
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
  status = read_data(tail, chunk, verify, parser);
  if (!status.ok()) return within("footer: ", chunk.placed(status));
  return index;
}

}  // namespace gristmill
