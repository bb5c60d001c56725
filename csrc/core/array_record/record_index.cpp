#include "core/array_record/record_index.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/base/varint.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

constexpr std::uint64_t kMinFileBytes = 2 * kBlockBytes;
constexpr std::uint64_t kMagic = 0x71930e704fdae05e;

// Of the postscript; it takes about 150.
constexpr std::size_t kPostscriptBytes = 1024;

// How much of a footer is taken at once.
constexpr std::size_t kReadBytes = 4 * kBlockBytes;

constexpr std::uint64_t kMostHeader = kChunkHeaderBytes + 2 * kBlockHeaderBytes;

// How much of a footer is read at once where each read takes long.
constexpr std::uint64_t kMostAhead = std::uint64_t{64} << 20;

// The signature of the file comes first.
constexpr std::uint64_t kFirstChunk = 64;

// What the records of a footer take at most: the first one, and any other.
constexpr std::uint64_t kMostMetadata = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostEntry = 64;

Status within(const char* part, const Status& status) {
  if (status.ok() || status.is_external()) return status;
  return Status(status.code(), part, status.message());
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
    if (offset < begin_ || offset + count > begin_ + bytes_.size()) {
      TRY(read(offset, offset + count));
    }
    return RawBytes{offset, std::span<const std::byte>(bytes_).subspan(
                                offset - begin_, count)};
  }

 private:
  // Reads [begin, end), and more where the file likes that.  What was read of
  // the end stays if the range before it is not too long.
  Status read(std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t ahead = file_.hints().tail_bytes;
    std::vector<std::byte> kept;
    if (ahead > 0 && bytes_.empty()) {
      end = file_.size();
      begin = std::min(begin, end - std::min(ahead, end));
    } else if (ahead > 0) {
      end = std::min(std::max(end, begin + kMostAhead), file_.size());
      if (begin < begin_ && end >= begin_) {
        end = begin_;
        kept.swap(bytes_);
      }
    }
    begin_ = begin;
    bytes_.resize(end - begin);
    TRY(file_.read(begin, bytes_));
    bytes_.insert(bytes_.end(), kept.begin(), kept.end());
    return {};
  }

  const File& file_;
  std::vector<std::byte> bytes_;
  std::uint64_t begin_ = 0;  // Of the bytes, in the file.
};

// The fields of a protocol buffer by their numbers, as far as any are of use.
struct Fields {
  std::array<std::uint64_t, 5> numbers{};
  std::array<std::span<const std::byte>, 5> bytes{};

  // False if the message cannot be read.
  [[nodiscard]] bool read(std::span<const std::byte> message) {
    ByteCursor cursor(message);
    while (cursor.left() > 0) {
      std::uint64_t tag = 0;
      std::uint64_t value = 0;
      std::span<const std::byte> run;
      if (!cursor.varint(tag)) return false;
      const std::uint64_t field = tag / 8;
      switch (tag % 8) {
        case 0:
          if (!cursor.varint(value)) return false;
          if (field < numbers.size()) numbers[field] = value;
          break;
        case 2:
          if (!cursor.varint(value) || !cursor.take(value, run)) return false;
          if (field < bytes.size()) bytes[field] = run;
          break;
        case 1:
        case 5:
          if (!cursor.take(tag % 8 == 1 ? 8 : 4, run)) return false;
          break;
        default:
          return false;
      }
    }
    return true;
  }
};

Status check_size(std::uint64_t size) {
  if (size >= kMinFileBytes && size % kBlockBytes == 0) return {};
  return damaged("the file has ", size,
                 " bytes, expected a multiple of 65536 and at least 131072: it "
                 "is no ArrayRecord file, or it was truncated or not closed by "
                 "its writer");
}

// Returns where the footer is: before `limit`.
Result<std::uint64_t> parse_postscript(std::span<const std::byte> record,
                                       std::uint64_t limit) {
  Fields fields;
  if (!fields.read(record)) return damaged("it is not readable");
  const auto [none, footer, magic, more, most] = fields.numbers;
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

Result<std::uint64_t> read_postscript(Tail& tail, std::uint64_t offset,
                                      Verify verify) {
  const auto raw = TRY(tail.fetch(offset, kPostscriptBytes));
  ChunkView chunk;
  TRY(chunk.open(raw, raw.end(), verify));
  DecodedChunk decoded;
  ByteBuffer spare;
  TRY(chunk.decode(decoded, spare));
  if (decoded.count() == 0) return chunk.placed(damaged("it is empty"));
  auto footer = parse_postscript(decoded.record(0), offset);
  if (!footer.ok()) return chunk.placed(footer.status());
  return footer;
}

// Makes an index of the records of a footer, none of which it trusts.
class IndexBuilder {
 public:
  // `offset` is where the footer is.
  explicit IndexBuilder(std::uint64_t offset) : offset_(offset) {}

  // REQUIRES: `count` is positive.
  Result<RecordIndex> build(const SimpleRecords& records,
                            std::uint64_t count) && {
    ByteCursor sizes(records.sizes.bytes);
    ByteCursor values(records.values.bytes);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t size = 0;
      std::span<const std::byte> record;
      if (!sizes.varint(size) || !values.take(size, record)) {
        return damaged("the size of its record ", i,
                       " is missing or too large");
      }
      const std::string wrong =
          i == 0 ? read_metadata(record, count - 1) : read_entry(record);
      if (!wrong.empty()) return damaged("its record ", i, ": ", wrong);
    }
    if (values.left() > 0) return damaged("its records exceed their sizes");
    if (sizes.left() > 0) return damaged("it has sizes of no record");
    if (num_records_ != index_.num_records) {
      return damaged("the records of its chunks add up to ",
                     found(num_records_, index_.num_records));
    }
    index_.chunks.finish(offset_);
    return std::move(index_);
  }

 private:
  // These return what is wrong with a record, or nothing.
  std::string read_metadata(std::span<const std::byte> record,
                            std::uint64_t listed) {
    Fields outer;
    Fields fields;
    if (!outer.read(record) || !fields.read(outer.bytes[1])) {
      return "it is not readable";
    }
    const auto [none, version, chunks, records, more] = fields.numbers;
    if (version != 1) return "the version is " + found(version, 1);
    if (chunks != listed) {
      return "the number of chunks is " + found(chunks, listed);
    }
    index_.num_records = records;
    const auto options = fields.bytes[4];
    index_.options.assign(reinterpret_cast<const char*>(options.data()),
                          options.size());
    return {};
  }

  std::string read_entry(std::span<const std::byte> record) {
    Fields fields;
    if (!fields.read(record)) return "it is not readable";
    const auto [none, offset, decoded_size, records, more] = fields.numbers;
    if (offset < least_offset_ || offset >= offset_) {
      return concat("its chunk is at offset ", offset, ", expected one from ",
                    least_offset_, " to ", offset_ - 1);
    }
    if (decoded_size > kMaxDecodedBytes) {
      return concat("its chunk has ", decoded_size, " bytes, expected at most ",
                    kMaxDecodedBytes);
    }
    least_offset_ = offset + 1;
    std::string wrong = count_records(records);
    if (wrong.empty()) index_.chunks.add(offset, decoded_size);
    return wrong;
  }

  // All chunks but the last have as many records as the first.
  std::string count_records(std::uint64_t records) {
    std::uint64_t& group = index_.group_size;
    if (index_.num_chunks() == 0) {
      group = records;
    } else if (last_records_ != group) {
      return "the chunk before has " + found(last_records_, group) + " records";
    }
    if (records == 0 || records > group || records > offset_) {
      return concat("its chunk has ", records, " records, expected 1 to ",
                    group);
    }
    last_records_ = records;
    num_records_ += records;
    return {};
  }

  const std::uint64_t offset_;
  RecordIndex index_;
  std::uint64_t least_offset_ = kFirstChunk;  // Where the next chunk may be.
  std::uint64_t last_records_ = 0;            // Of the chunk listed last.
  std::uint64_t num_records_ = 0;             // Of all listed so far.
};

// Checks what the header of a footer says before memory is taken for it.
Status check_footer(const ChunkHeader& header) {
  if (header.type != kSimple) {
    return damaged("its type is ", hex(header.type), ", expected 'r'");
  }
  const auto [records, bytes] = header.sizes;
  if (records == 0) return damaged("it has no records");
  const std::uint64_t most = kMostMetadata + kMostEntry * records;
  if (bytes <= most) return {};
  return damaged("its records have ", bytes, " bytes, expected at most ", most);
}

// Reads the data of a footer, in pieces, and compares their hash.
Status read_data(Tail& tail, const ChunkView& chunk, Verify verify,
                 ByteBuffer& data) {
  if (!data.reset(chunk.header().data_size)) return no_memory_for("its data");
  std::span<std::byte> to = data.all();
  HighwayHash hash(kRiegeliKey);
  for (std::uint64_t at = chunk.data_begin(); at < chunk.data_end();) {
    const std::uint64_t end =
        std::min(chunk.data_end(), (at / kReadBytes + 1) * kReadBytes);
    BlockWalk walk(TRY(tail.fetch(at, end - at)), verify);
    for (;;) {
      const auto piece = walk.next(to.size());
      TRY(walk.status());
      if (piece.empty()) break;
      if (verify != Verify::kNone) hash.append(piece);
      std::ranges::copy(piece, to.begin());
      to = to.subspan(piece.size());
    }
    at = end;
  }
  return chunk.check_data(hash);
}

// Reads the index in a footer of which `chunk` has the header.
Result<RecordIndex> read_entries(Tail& tail, const ChunkView& chunk,
                                 std::uint64_t offset, Verify verify) {
  TRY(check_footer(chunk.header()));
  const ChunkSizes& sizes = chunk.header().sizes;
  ByteBuffer data;
  SimpleRecords records;
  TRY(read_data(tail, chunk, verify, data));
  TRY(unpack_simple(data.all(), sizes, records));
  return IndexBuilder(offset).build(records, sizes.num_records);
}

// Reads the footer at `offset`, which ends at `limit` or before.
Result<RecordIndex> read_footer(Tail& tail, std::uint64_t offset,
                                std::uint64_t limit, Verify verify) {
  if (verify == Verify::kHeaders) verify = Verify::kAll;  // It is one.
  const auto raw =
      TRY(tail.fetch(offset, std::min(kMostHeader, limit - offset)));
  ChunkView chunk;
  TRY(chunk.open(raw, limit, verify));
  auto index = read_entries(tail, chunk, offset, verify);
  if (!index.ok()) return chunk.placed(index.status());
  return index;
}

}  // namespace

Result<RecordIndex> RecordIndex::read(const File& file, Verify verify) {
  TRY(check_size(file.size()));
  const std::uint64_t limit = file.size() - kBlockBytes;
  Tail tail(file);
  auto footer = read_postscript(tail, limit, verify);
  if (!footer.ok()) return within("postscript: ", footer.status());
  auto index = read_footer(tail, footer.value(), limit, verify);
  if (!index.ok()) return within("footer: ", index.status());
  return index;
}

}  // namespace gristmill
