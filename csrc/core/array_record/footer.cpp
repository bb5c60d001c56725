#include "core/array_record/footer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/array_record/codec.hpp"
#include "core/array_record/fields.hpp"
#include "core/base/varint.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

constexpr std::uint64_t kMinFileBytes = 2 * kBlockBytes;
// The magic number in the postscript of every ArrayRecord file.
constexpr std::uint64_t kMagic = 0x71930e704fdae05e;

// Bytes to read for the postscript, which takes about 150.
constexpr std::size_t kPostscriptBytes = 1024;

// Bytes of a footer to read at once.
constexpr std::size_t kReadBytes = 4 * kBlockBytes;

// Enough for a chunk header and the block headers before or inside it.
constexpr std::uint64_t kMaxChunkHeadersBytes =
    kChunkHeaderBytes + 2 * kBlockHeaderBytes;

// Maximum bytes of the first record of a footer, and of each other record.
constexpr std::uint64_t kMaxMetadataBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxEntryBytes = 64;

// Bytes to read first when only the beginning of a part is needed.  A block of
// zstd decompresses to 128 KiB, and numbers compress to about half.
constexpr std::uint64_t kFrontBytes = std::uint64_t{1} << 16;

// Prepends `prefix` to the message of an error in the file.
Status add_prefix(const char* prefix, const Status& status) {
  if (status.ok() || status.is_external()) return status;
  return Status(status.code(), prefix, status.message());
}

Status check_size(std::uint64_t size) {
  if (size >= kMinFileBytes && size % kBlockBytes == 0) return {};
  return damaged(
      "the file has ", size,
      " bytes, expected a multiple of 65536 and at least 131072: it "
      "is not an ArrayRecord file, or it was truncated or not closed by "
      "its writer");
}

// Returns the offset of the footer, which must be below `limit`.
Result<std::uint64_t> parse_postscript(std::span<const std::byte> record,
                                       std::uint64_t limit) {
  Fields fields;
  if (!fields.read(record)) return damaged("it is not readable");
  // Field 1 is the offset of the footer, field 2 the magic number.
  const std::uint64_t footer = fields.numbers[1];
  const std::uint64_t magic = fields.numbers[2];
  if (magic != kMagic) {
    return damaged("its magic number is ", hex(magic), ", expected ",
                   hex(kMagic));
  }
  if (footer < kFirstChunk || footer >= limit) {
    return damaged("it puts the footer at offset ", footer,
                   ", expected one from 64 to ", limit - 1);
  }
  return footer;
}

Result<std::uint64_t> read_postscript(FileTail& tail, std::uint64_t offset,
                                      Verify verify) {
  const auto raw = TRY(tail.fetch(offset, kPostscriptBytes));
  ChunkView chunk;
  TRY(chunk.open(raw, raw.end(), verify));
  DecodedChunk decoded;
  ByteBuffer spare;
  TRY(chunk.decode(decoded, spare));
  if (decoded.count() == 0) {
    return chunk.add_chunk_context(damaged("it is empty"));
  }
  auto footer = parse_postscript(decoded.record(0), offset);
  if (!footer.ok()) return chunk.add_chunk_context(footer.status());
  return footer;
}

// Checks the header of a footer before memory is allocated for its data.
Status check_footer(const ChunkHeader& header) {
  if (header.type != kSimple) {
    return damaged("its type is ", hex(header.type), ", expected 'r'");
  }
  const auto [records, bytes] = header.sizes;
  if (records == 0) return damaged("it has no records");
  const std::uint64_t max_bytes = kMaxMetadataBytes + kMaxEntryBytes * records;
  if (bytes <= max_bytes) return {};
  return damaged("its records have ", bytes, " bytes, expected at most ",
                 max_bytes);
}

}  // namespace

Result<Footer> Footer::find(const File& file, Verify verify,
                            std::uint64_t min_read_bytes) {
  TRY(check_size(file.size()));
  const std::uint64_t limit = file.size() - kBlockBytes;
  FileTail tail(file, min_read_bytes);
  auto offset = read_postscript(tail, limit, verify);
  if (!offset.ok()) return add_prefix("postscript: ", offset.status());
  // The footer consists of headers, so kHeaders verifies all of it.
  if (verify == Verify::kHeaders) verify = Verify::kAll;
  Footer footer(std::move(tail), offset.value(), verify);
  const Status status = footer.open(limit);
  if (!status.ok()) return add_prefix("footer: ", status);
  return footer;
}

// Reads the header of the chunk.  The chunk must end at or before `limit`.
Status Footer::open(std::uint64_t limit) {
  const auto raw = TRY(
      tail_.fetch(offset_, std::min(kMaxChunkHeadersBytes, limit - offset_)));
  TRY(chunk_.open(raw, limit, verify_));
  return chunk_.add_chunk_context(check_footer(chunk_.header()));
}

Status Footer::add_footer_context(const Status& status) const {
  return add_prefix("footer: ", chunk_.add_chunk_context(status));
}

Result<Footer::Counts> Footer::parse_counts(
    std::span<const std::byte> record) const {
  Fields outer;
  Fields fields;
  if (!outer.read(record) || !fields.read(outer.bytes[1])) {
    return damaged("its record 0: it is not readable");
  }
  // Field 1 of the record is a message with these fields.
  const std::uint64_t version = fields.numbers[1];
  const std::uint64_t chunks = fields.numbers[2];
  const std::uint64_t records = fields.numbers[3];
  if (version != 1) {
    return damaged("its record 0: the version is ", found(version, 1));
  }
  if (chunks != num_chunks()) {
    return damaged("its record 0: the number of chunks is ",
                   found(chunks, num_chunks()));
  }
  const auto options = fields.bytes[4];
  return Counts{records, chunks,
                std::string(reinterpret_cast<const char*>(options.data()),
                            options.size())};
}

Status Footer::read(ByteBuffer& data, SimpleRecords& records) {
  TRY(read_data(data));
  return unpack_simple(data.all(), chunk_.header().sizes, records);
}

// Reads the data in pieces and checks their hash.
Status Footer::read_data(ByteBuffer& data) {
  if (!data.reset(chunk_.header().data_size)) return no_memory_for("its data");
  std::span<std::byte> to = data.all();
  HighwayHash hash(kRiegeliKey);
  for (std::uint64_t at = chunk_.data_begin(); at < chunk_.data_end();) {
    const std::uint64_t end =
        std::min(chunk_.data_end(), (at / kReadBytes + 1) * kReadBytes);
    BlockWalk walk(TRY(tail_.fetch(at, end - at)), verify_);
    for (;;) {
      const auto piece = walk.next(to.size());
      TRY(walk.status());
      if (piece.empty()) break;
      if (verify_ != Verify::kNone) hash.append(piece);
      std::ranges::copy(piece, to.begin());
      to = to.subspan(piece.size());
    }
    at = end;
  }
  return chunk_.check_data(hash);
}

Result<Footer::Counts> Footer::read_front() {
  auto counts = parse_front();
  if (!counts.ok()) return add_footer_context(counts.status());
  return counts;
}

Result<Footer::Counts> Footer::parse_front() {
  const std::uint64_t data_size = chunk_.header().data_size;
  ByteBuffer bytes;
  TRY(fetch({0, std::min<std::uint64_t>(data_size, 1 + kMaxVarint)}, bytes));
  ByteCursor cursor(bytes.all());
  std::uint8_t byte = 0;
  std::uint64_t sizes_bytes = 0;
  if (!cursor.byte(byte) || !codec_of(byte) || !cursor.varint(sizes_bytes)) {
    return damaged(
        "its compression type or the length of its sizes is not readable");
  }
  const Codec codec = *codec_of(byte);
  const std::uint64_t sizes_begin = bytes.all().size() - cursor.left();
  if (sizes_bytes > data_size - sizes_begin) {
    return damaged("the sizes of the records exceed its data");
  }
  std::array<std::byte, kMaxVarint> first;
  const std::size_t num_bytes =
      TRY(unpack_front(codec, {sizes_begin, sizes_bytes}, first));
  std::uint64_t size = 0;
  if (!ByteCursor(std::span(first).first(num_bytes)).varint(size) ||
      size > kMaxMetadataBytes) {
    return damaged("the size of its record 0 is missing or too large");
  }
  ByteBuffer record;
  if (!record.reset(size)) return no_memory_for("its record 0");
  const std::uint64_t values = sizes_begin + sizes_bytes;
  if (TRY(unpack_front(codec, {values, data_size - values}, record.all())) <
      size) {
    return damaged("its record 0 is incomplete");
  }
  return parse_counts(record.all());
}

// Decompresses the beginning of a part.  Returns the number of bytes written,
// at most to.size().
Result<std::size_t> Footer::unpack_front(Codec codec, const Part& part,
                                         std::span<std::byte> to) {
  ByteBuffer bytes;
  for (std::uint64_t prefix_bytes = kFrontBytes;; prefix_bytes *= 4) {
    const std::uint64_t part_bytes = std::min(prefix_bytes, part.size);
    TRY(fetch({part.begin, part_bytes}, bytes));
    ByteCursor cursor(bytes.all());
    std::uint64_t unpacked = 0;
    if (codec != Codec::kNone && !cursor.varint(unpacked)) return 0;
    const std::size_t num_bytes =
        TRY(decompress_front(codec, cursor.rest(), to));
    if (num_bytes == to.size() || part_bytes == part.size) return num_bytes;
  }
}

Status Footer::fetch(const Part& part, ByteBuffer& to) {
  if (!to.reset(part.size)) return no_memory_for("its data");
  const std::uint64_t bytes_before_part = kChunkHeaderBytes + part.begin;
  const std::uint64_t begin = skip_bytes(offset_, bytes_before_part);
  const std::uint64_t end = skip_bytes(offset_, bytes_before_part + part.size);
  BlockWalk walk(TRY(tail_.fetch(begin, end - begin)), verify_);
  if (walk.fill(to.all())) return {};
  TRY(walk.status());
  return damaged("its data end too early");
}

}  // namespace gristmill
