#include "core/array_record/record_index.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/base/varint.hpp"
#include "core/files/damage.hpp"

namespace gristmill {
namespace {

constexpr std::uint64_t kMinFileBytes = 2 * kBlockBytes;
constexpr std::uint64_t kMagic = 0x71930e704fdae05e;
constexpr std::uint8_t kSimple = 'r';

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

// One field of a protocol buffer: a number, or bytes.
struct Field {
  std::uint64_t tag = 0;  // The number of the field times 8, and wire type.
  std::uint64_t value = 0;
  std::span<const std::byte> bytes;
};

constexpr std::uint64_t number_field(unsigned number) { return number * 8; }
constexpr std::uint64_t bytes_field(unsigned number) { return number * 8 + 2; }

bool read_field(ByteCursor& cursor, Field& field) {
  if (!cursor.varint(field.tag)) return false;
  switch (field.tag % 8) {
    case 0:
      return cursor.varint(field.value);
    case 1:
      return cursor.take(8, field.bytes);
    case 2:
      return cursor.varint(field.value) &&
             cursor.take(field.value, field.bytes);
    case 5:
      return cursor.take(4, field.bytes);
    default:
      return false;
  }
}

// Calls `each` with the fields of a message; false if it cannot be read.
template <class Each>
bool each_field(std::span<const std::byte> message, Each&& each) {
  ByteCursor cursor(message);
  Field field;
  while (cursor.left() > 0) {
    if (!read_field(cursor, field)) return false;
    each(field);
  }
  return true;
}

Status check_size(std::uint64_t size) {
  if (size >= kMinFileBytes && size % kBlockBytes == 0) return {};
  return damaged("the file has " + std::to_string(size) +
                 " bytes, expected a multiple of 65536 and at least 131072: it "
                 "is no ArrayRecord file, or it was truncated or not closed by "
                 "its writer");
}

// Returns where the footer is: before `limit`.
Result<std::uint64_t> parse_postscript(std::span<const std::byte> record,
                                       std::uint64_t limit) {
  std::uint64_t footer = 0;
  std::uint64_t magic = 0;
  const bool whole = each_field(record, [&](const Field& field) {
    if (field.tag == number_field(1)) footer = field.value;
    if (field.tag == number_field(2)) magic = field.value;
  });
  if (!whole) return damaged("it is not readable");
  if (magic != kMagic) {
    return damaged("its magic number is " + hex(magic) + ", expected " +
                   hex(kMagic));
  }
  if (footer < kFirstChunk || footer >= limit) {
    return damaged("it puts the footer at offset " + std::to_string(footer) +
                   ", expected one from 64 to " + std::to_string(limit - 1));
  }
  return footer;
}

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
  auto footer = parse_postscript(decoded.record(0), offset);
  if (!footer.ok()) return chunk.placed(footer.status());
  return footer;
}

}  // namespace

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
        return damaged("the size of its record " + std::to_string(i) +
                       " is missing or too large");
      }
      const std::string wrong =
          i == 0 ? read_metadata(record, count - 1) : read_entry(record);
      if (!wrong.empty()) {
        return damaged("its record " + std::to_string(i) + ": " + wrong);
      }
    }
    if (values.left() > 0) return damaged("its records exceed their sizes");
    if (sizes.left() > 0) return damaged("it has sizes of no record");
    if (num_records_ != index_.num_records_) {
      return damaged("the records of its chunks add up to " +
                     found(num_records_, index_.num_records_));
    }
    index_.chunks_.finish(offset_);
    return std::move(index_);
  }

 private:
  // These return what is wrong with a record, or nothing.
  std::string read_metadata(std::span<const std::byte> record,
                            std::uint64_t listed) {
    std::span<const std::byte> inner;
    std::uint64_t version = 0;
    std::uint64_t chunks = 0;
    const bool whole = each_field(record, [&](const Field& field) {
      if (field.tag == bytes_field(1)) inner = field.bytes;
    });
    if (!whole || !each_field(inner, [&](const Field& field) {
          if (field.tag == number_field(1)) version = field.value;
          if (field.tag == number_field(2)) chunks = field.value;
          if (field.tag == number_field(3)) index_.num_records_ = field.value;
          if (field.tag == bytes_field(4)) {
            index_.options_.assign(
                reinterpret_cast<const char*>(field.bytes.data()),
                field.bytes.size());
          }
        })) {
      return "it is not readable";
    }
    if (version != 1) return "the version is " + found(version, 1);
    if (chunks != listed) {
      return "the number of chunks is " + found(chunks, listed);
    }
    index_.chunks_.reserve(chunks);
    return {};
  }

  std::string read_entry(std::span<const std::byte> record) {
    std::uint64_t offset = 0;
    std::uint64_t decoded_size = 0;
    std::uint64_t records = 0;
    const bool whole = each_field(record, [&](const Field& field) {
      if (field.tag == number_field(1)) offset = field.value;
      if (field.tag == number_field(2)) decoded_size = field.value;
      if (field.tag == number_field(3)) records = field.value;
    });
    if (!whole) return "it is not readable";
    if (offset < least_offset_ || offset >= offset_) {
      return "its chunk is at offset " + std::to_string(offset) +
             ", expected one from " + std::to_string(least_offset_) + " to " +
             std::to_string(offset_ - 1);
    }
    if (decoded_size > kMaxDecodedBytes) {
      return "its chunk has " + std::to_string(decoded_size) +
             " bytes, expected at most " + std::to_string(kMaxDecodedBytes);
    }
    least_offset_ = offset + 1;
    std::string wrong = count_records(records);
    if (wrong.empty()) index_.chunks_.add(offset, decoded_size);
    return wrong;
  }

  // All chunks but the last have as many records as the first.
  std::string count_records(std::uint64_t records) {
    std::uint64_t& group = index_.group_size_;
    if (index_.num_chunks() == 0) {
      group = records;
    } else if (last_records_ != group) {
      return "the chunk before has " + found(last_records_, group) + " records";
    }
    if (records == 0 || records > group || records > offset_) {
      return "its chunk has " + std::to_string(records) +
             " records, expected 1 to " + std::to_string(group);
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

namespace {

// Checks what the header of a footer says before memory is taken for it.
Status check_footer(const ChunkView& chunk) {
  const ChunkHeader& header = chunk.header();
  if (header.type != kSimple) {
    return chunk.placed(
        damaged("its type is " + hex(header.type) + ", expected 'r'"));
  }
  if (header.sizes.num_records == 0) {
    return chunk.placed(damaged("it has no records"));
  }
  const std::uint64_t most =
      kMostMetadata + kMostEntry * header.sizes.num_records;
  if (header.sizes.decoded_size > most) {
    return chunk.placed(damaged(
        "its records have " + std::to_string(header.sizes.decoded_size) +
        " bytes, expected at most " + std::to_string(most)));
  }
  return {};
}

// Reads the data of a footer, in pieces, and compares their hash.
Status read_data(Tail& tail, const ChunkView& chunk, Verify verify,
                 ByteBuffer& data) {
  if (!data.reset(chunk.header().data_size)) {
    return Status(Code::kNoMemory, "no memory for its data");
  }
  std::span<std::byte> to = data.all();
  HighwayHash hash(kRiegeliKey);
  for (std::uint64_t at = chunk.data_begin(); at < chunk.data_end();) {
    const std::uint64_t end =
        std::min(chunk.data_end(), (at / kReadBytes + 1) * kReadBytes);
    auto raw = tail.fetch(at, end - at);
    if (!raw.ok()) return raw.status();
    BlockWalk walk(raw.value(), verify);
    for (;;) {
      const auto piece = walk.next(to.size());
      if (!walk.status().ok()) return walk.status();
      if (piece.empty()) break;
      if (verify != Verify::kNone) hash.append(piece);
      std::ranges::copy(piece, to.begin());
      to = to.subspan(piece.size());
    }
    at = end;
  }
  return chunk.check_data(hash);
}

// Reads the footer at `offset`, which ends at `limit` or before.
Result<RecordIndex> read_footer(Tail& tail, std::uint64_t offset,
                                std::uint64_t limit, Verify verify) {
  if (verify == Verify::kHeaders) verify = Verify::kAll;  // It is one.
  auto raw = tail.fetch(offset, std::min(kMostHeader, limit - offset));
  if (!raw.ok()) return raw.status();
  ChunkView chunk;
  Status status = chunk.open(raw.value(), limit, verify);
  if (status.ok()) status = check_footer(chunk);
  if (!status.ok()) return status;
  ByteBuffer data;
  SimpleRecords records;
  const ChunkSizes& sizes = chunk.header().sizes;
  status = read_data(tail, chunk, verify, data);
  if (status.ok()) status = unpack_simple(data.all(), sizes, records);
  if (!status.ok()) return chunk.placed(status);
  auto index = IndexBuilder(offset).build(records, sizes.num_records);
  if (!index.ok()) return chunk.placed(index.status());
  return index;
}

}  // namespace

Result<RecordIndex> RecordIndex::read(const File& file, Verify verify) {
  Status status = check_size(file.size());
  if (!status.ok()) return status;
  const std::uint64_t limit = file.size() - kBlockBytes;
  Tail tail(file);
  auto footer = read_postscript(tail, limit, verify);
  if (!footer.ok()) return within("postscript: ", footer.status());
  auto index = read_footer(tail, footer.value(), limit, verify);
  if (!index.ok()) return within("footer: ", index.status());
  return index;
}

}  // namespace gristmill
