#include "core/array_record/record_chunk.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "core/array_record/transposed_chunk.hpp"
#include "core/base/varint.hpp"
#include "core/files/damage.hpp"

namespace gristmill {
namespace {

constexpr std::uint8_t kSimple = 'r';
constexpr std::uint8_t kTransposed = 't';

// Hashed and then copied while still in the first-level cache.
constexpr std::size_t kPieceBytes = std::size_t{16} << 10;

// A byte for the codec and two varints are the most that precede a record.
constexpr std::size_t kMaxPrefix = 1 + 2 * kMaxVarint;

std::string found_hash(std::uint64_t value, std::uint64_t expected) {
  return hex(value) + ", expected " + hex(expected);
}

// The parts of a simple chunk.
struct SimpleParts {
  Codec codec = Codec::kNone;
  std::span<const std::byte> sizes;
  std::span<const std::byte> values;
};

Status split_simple(std::span<const std::byte> data, SimpleParts& parts) {
  ByteCursor cursor(data);
  std::uint8_t byte = 0;
  if (!cursor.byte(byte)) return damaged("it has no data");
  const auto codec = codec_of(byte);
  if (!codec) {
    return damaged("compression type is " + hex(byte) +
                   ", expected 0, 'b', 's' or 'z'");
  }
  std::uint64_t sizes_bytes = 0;
  if (!cursor.varint(sizes_bytes) || !cursor.take(sizes_bytes, parts.sizes)) {
    return damaged("the sizes of the records exceed its data");
  }
  parts.codec = *codec;
  parts.values = cursor.rest();
  return {};
}

// Turns the sizes of records into where each ends.
Status sum_sizes(std::span<const std::byte> sizes, const ChunkSizes& expected,
                 std::vector<std::uint64_t>& ends) {
  if (expected.num_records > sizes.size()) {
    return damaged("it has " + std::to_string(expected.num_records) +
                   " records, but their sizes take only " +
                   std::to_string(sizes.size()) + " bytes");
  }
  ends.resize(static_cast<std::size_t>(expected.num_records));
  ByteCursor cursor(sizes);
  std::uint64_t sum = 0;
  for (std::uint64_t& end : ends) {
    std::uint64_t size = 0;
    if (!cursor.varint(size) || size > expected.decoded_size - sum) {
      return damaged("the sizes of its records exceed their sum, " +
                     std::to_string(expected.decoded_size));
    }
    sum += size;
    end = sum;
  }
  if (cursor.left() > 0) {
    return damaged("it has sizes of more than its " +
                   std::to_string(expected.num_records) + " records");
  }
  if (sum != expected.decoded_size) {
    return damaged("the sizes of its records add up to " +
                   found(sum, expected.decoded_size));
  }
  return {};
}

// Decompresses the values of a simple chunk straight to where they belong.
Status unpack_values(const SimpleParts& parts, std::span<std::byte> to) {
  ByteCursor cursor(parts.values);
  std::uint64_t size = parts.values.size();
  if (parts.codec != Codec::kNone && !cursor.varint(size)) {
    return damaged("the size of its values is not readable");
  }
  if (size != to.size()) {
    return damaged("the size of its values is " + found(size, to.size()));
  }
  return decompress(parts.codec, cursor.rest(), to);
}

}  // namespace

std::string hex(std::uint64_t value) {
  std::array<char, 20> text;
  const int length =
      std::snprintf(text.data(), text.size(), "0x%" PRIx64, value);
  return std::string(text.data(), static_cast<std::size_t>(length));
}

Status unpack(Codec codec, std::span<const std::byte> stored,
              std::uint64_t most, const char* what, Unpacked& to) {
  std::uint64_t size = stored.size();
  ByteCursor cursor(stored);
  if (codec != Codec::kNone && !cursor.varint(size)) {
    return damaged(std::string("the length of its ") + what +
                   " is not readable");
  }
  if (size > most || !plausible(codec, cursor.left(), size)) {
    return damaged(std::string("its ") + what + " have " +
                   std::to_string(size) + " bytes in " +
                   std::to_string(stored.size()) + ", expected at most " +
                   std::to_string(most));
  }
  if (codec == Codec::kNone) {
    to.bytes = stored;
    return {};
  }
  if (!to.own.reset(size)) {
    return Status(Code::kNoMemory, std::string("no memory for its ") + what);
  }
  to.bytes = to.own.all();
  return decompress(codec, cursor.rest(), to.own.all());
}

Status unpack_simple(std::span<const std::byte> data, const ChunkSizes& sizes,
                     SimpleRecords& to) {
  SimpleParts parts;
  Status status = split_simple(data, parts);
  if (!status.ok()) return status;
  status = unpack(parts.codec, parts.sizes, sizes.num_records * kMaxVarint,
                  "sizes", to.sizes);
  if (!status.ok()) return status;
  if (status.ok()) {
    status = unpack(parts.codec, parts.values, sizes.decoded_size, "values",
                    to.values);
  }
  const std::uint64_t size = to.values.bytes.size();
  if (!status.ok() || size == sizes.decoded_size) return status;
  return damaged("the size of its values is " +
                 found(size, sizes.decoded_size));
}

namespace {

Status decode_simple(std::span<const std::byte> data, const ChunkSizes& sizes,
                     DecodedChunk& to) {
  SimpleRecords parts;
  Status status = unpack_simple(data, sizes, parts);
  if (status.ok()) status = sum_sizes(parts.sizes.bytes, sizes, to.ends);
  if (!status.ok()) return status;
  if (parts.values.is_own()) {
    to.values = std::move(parts.values.own);
    return {};
  }
  if (!to.values.reset(sizes.decoded_size)) {
    return Status(Code::kNoMemory, "no memory for " +
                                       std::to_string(sizes.decoded_size) +
                                       " bytes of records");
  }
  std::ranges::copy(parts.values.bytes, to.values.all().begin());
  return {};
}

}  // namespace

std::span<const std::byte> BlockWalk::next(std::uint64_t most) {
  if (at_ % kBlockBytes == 0 && !pass_header()) return {};
  const std::uint64_t run =
      std::min({most, raw_.end() - at_, kBlockBytes - at_ % kBlockBytes});
  const auto bytes = raw_.bytes.subspan(at_ - raw_.begin, run);
  at_ += run;
  return bytes;
}

bool BlockWalk::pass_header() {
  if (raw_.end() - at_ < kBlockHeaderBytes) return false;
  if (verify_ != Verify::kNone) {
    const auto header = raw_.bytes.subspan(at_ - raw_.begin, kBlockHeaderBytes);
    const auto stored = load_le<std::uint64_t>(header.data());
    const auto hash = HighwayHash::of(kRiegeliKey, header.subspan(8));
    if (hash != stored) {
      status_ = damaged("block header at offset " + std::to_string(at_) +
                        ": its hash is " + found_hash(hash, stored));
      return false;
    }
  }
  at_ += kBlockHeaderBytes;
  return true;
}

bool BlockWalk::fill(std::span<std::byte> to) {
  while (!to.empty()) {
    const auto run = next(to.size());
    if (run.empty()) return false;
    std::memcpy(to.data(), run.data(), run.size());
    to = to.subspan(run.size());
  }
  return true;
}

Status ChunkView::placed(Status status) const {
  if (status.ok() || status.is_external()) return status;
  const bool is_damaged = status.code() == Code::kInvalidArgument;
  return Status(
      status.code(),
      "chunk at offset " + std::to_string(raw_.begin) + ": " +
          status.message() +
          (is_damaged ? ": the file is damaged, copy it or write it again"
                      : ""));
}

Status ChunkView::open(const RawBytes& raw, std::uint64_t limit,
                       Verify verify) {
  raw_ = raw;
  verify_ = verify;
  BlockWalk walk(raw, verify);
  std::array<std::byte, kChunkHeaderBytes> bytes;
  if (!walk.fill(bytes)) {
    if (!walk.status().ok()) return placed(walk.status());
    return placed(damaged("its header of 40 bytes does not fit before offset " +
                          std::to_string(limit)));
  }
  if (verify != Verify::kNone) {
    const auto stored = load_le<std::uint64_t>(bytes.data());
    const auto hash = HighwayHash::of(kRiegeliKey, std::span(bytes).subspan(8));
    if (hash != stored) {
      return placed(
          damaged("the hash of its header is " + found_hash(hash, stored)));
    }
  }
  const auto word = load_le<std::uint64_t>(bytes.data() + 24);
  header_ = {load_le<std::uint64_t>(bytes.data() + 8),
             load_le<std::uint64_t>(bytes.data() + 16),
             static_cast<std::uint8_t>(word & 0xff),
             {word >> 8, load_le<std::uint64_t>(bytes.data() + 32)}};
  if (header_.sizes.decoded_size > kMaxDecodedBytes) {
    return placed(damaged(
        "its records have " + std::to_string(header_.sizes.decoded_size) +
        " bytes, expected at most " + std::to_string(kMaxDecodedBytes)));
  }
  const std::uint64_t room = limit - raw.begin;
  if (header_.data_size > room || header_.sizes.num_records > room ||
      skip_bytes(raw.begin, kChunkHeaderBytes + header_.data_size) > limit) {
    return placed(damaged(
        "it has " + std::to_string(header_.data_size) + " bytes of data and " +
        std::to_string(header_.sizes.num_records) +
        " records, but must end before offset " + std::to_string(limit)));
  }
  data_begin_ = walk.position();
  data_end_ = skip_bytes(raw.begin, kChunkHeaderBytes + header_.data_size);
  return {};
}

BlockWalk ChunkView::walk_data() const {
  assert(whole());
  return BlockWalk({data_begin_, raw_.bytes.subspan(data_begin_ - raw_.begin,
                                                    data_end_ - data_begin_)},
                   verify_);
}

Status ChunkView::check_data(const HighwayHash& hash) const {
  if (verify_ != Verify::kAll || hash.value() == header_.data_hash) return {};
  return damaged("the hash of its data is " +
                 found_hash(hash.value(), header_.data_hash));
}

// Says why a walk ended before the data did.
Status ChunkView::cut_short(const BlockWalk& walk) {
  return walk.status().ok() ? damaged("its data end too early") : walk.status();
}

// Returns the data in one piece: as they lie, or copied to `spare`.
Status ChunkView::find_data(ByteBuffer& spare,
                            std::span<const std::byte>& data) const {
  BlockWalk walk = walk_data();
  data = walk.next(header_.data_size);
  if (data.size() < header_.data_size) {
    if (!spare.reset(header_.data_size)) {
      return Status(Code::kNoMemory, "no memory for its data");
    }
    const std::size_t first = data.size();
    if (first > 0) std::memcpy(spare.all().data(), data.data(), first);
    if (!walk.fill(spare.all().subspan(first))) return cut_short(walk);
    data = spare.all();
  }
  HighwayHash hash(kRiegeliKey);
  if (verify_ == Verify::kAll) hash.append(data);
  return check_data(hash);
}

// One pass over the bytes: each is hashed and copied while it is at hand.
Status ChunkView::copy_plain_record(std::span<std::byte> to) const {
  std::array<std::byte, kMaxPrefix> start;
  const auto peeked = std::span(start).first(
      std::min<std::size_t>(start.size(), header_.data_size));
  BlockWalk walk = walk_data();
  if (!walk.fill(peeked)) return cut_short(walk);
  ByteCursor cursor(peeked.subspan(1));
  std::uint64_t sizes_bytes = 0;
  std::uint64_t size = 0;
  if (!cursor.varint(sizes_bytes)) return damaged("its sizes are not readable");
  const std::size_t before = cursor.left();
  if (!cursor.varint(size) || before - cursor.left() != sizes_bytes) {
    return damaged("the size of its record is not readable");
  }
  std::uint64_t prefix = peeked.size() - cursor.left();
  if (size != to.size() || header_.data_size - prefix != size) {
    return damaged("its record has " + std::to_string(size) + " bytes of " +
                   found(header_.data_size - prefix, to.size()));
  }
  HighwayHash hash(kRiegeliKey);
  walk = walk_data();
  for (std::uint64_t left = header_.data_size; left > 0;) {
    auto piece = walk.next(std::min<std::uint64_t>(left, kPieceBytes));
    if (piece.empty()) return cut_short(walk);
    left -= piece.size();
    if (verify_ == Verify::kAll) hash.append(piece);
    const auto skipped = std::min<std::uint64_t>(prefix, piece.size());
    prefix -= skipped;
    piece = piece.subspan(skipped);
    if (piece.empty()) continue;
    std::memcpy(to.data(), piece.data(), piece.size());
    to = to.subspan(piece.size());
  }
  return check_data(hash);
}

Status ChunkView::try_only_record(std::span<std::byte> to,
                                  ByteBuffer& spare) const {
  if (header_.type == kSimple) {
    std::array<std::byte, 1> codec;
    BlockWalk walk = walk_data();
    if (header_.data_size == 0) return damaged("it has no data");
    if (!walk.fill(codec)) return cut_short(walk);
    if (codec[0] == std::byte{0}) return copy_plain_record(to);
    std::span<const std::byte> data;
    Status status = find_data(spare, data);
    if (!status.ok()) return status;
    SimpleParts parts;
    status = split_simple(data, parts);
    if (!status.ok()) return status;
    return unpack_values(parts, to);
  }
  DecodedChunk chunk;
  Status status = decode(chunk, spare);
  if (!status.ok()) return status;
  const auto record = chunk.record(0);
  if (!to.empty()) std::memcpy(to.data(), record.data(), to.size());
  return {};
}

Status ChunkView::read_only_record(std::span<std::byte> to,
                                   ByteBuffer& spare) const {
  assert(header_.sizes.num_records == 1);
  assert(header_.sizes.decoded_size == to.size());
  return placed(try_only_record(to, spare));
}

Status ChunkView::decode(DecodedChunk& to, ByteBuffer& spare) const {
  std::span<const std::byte> data;
  Status status = find_data(spare, data);
  if (!status.ok()) return placed(status);
  if (header_.type == kSimple) {
    return placed(decode_simple(data, header_.sizes, to));
  }
  if (header_.type == kTransposed) {
    return placed(decode_transposed(data, header_.sizes, to));
  }
  return placed(
      damaged("its type is " + hex(header_.type) + ", expected 'r' or 't'"));
}

}  // namespace gristmill
