#include "core/array_record/record_chunk.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/array_record/transposed_chunk.hpp"
#include "core/base/varint.hpp"

namespace gristmill {
namespace {

constexpr std::uint8_t kTransposed = 't';

// A codec byte and at most two varints precede a record.
constexpr std::size_t kMaxPrefixBytes = 1 + 2 * kMaxVarint;

// Returns text such as "0x5, expected 0x7".
std::string found_hash(std::uint64_t value, std::uint64_t expected) {
  return hex(value) + ", expected " + hex(expected);
}

// The parts of a simple chunk, as they are stored.
struct StoredParts {
  Codec codec = Codec::kNone;
  std::span<const std::byte> sizes;
  std::span<const std::byte> values;
};

Result<StoredParts> split_simple(std::span<const std::byte> data) {
  StoredParts parts;
  ByteCursor cursor(data);
  std::uint8_t byte = 0;
  if (!cursor.byte(byte)) return damaged("it has no data");
  const auto codec = codec_of(byte);
  if (!codec) {
    return damaged("compression type is ", hex(byte),
                   ", expected 0, 'b', 's' or 'z'");
  }
  std::uint64_t sizes_bytes = 0;
  if (!cursor.varint(sizes_bytes) || !cursor.take(sizes_bytes, parts.sizes)) {
    return damaged("the sizes of the records exceed its data");
  }
  parts.codec = *codec;
  parts.values = cursor.rest();
  return parts;
}

// Converts the sizes of records to their ends.  Fails if the number or the sum
// of the sizes is not as expected.
Status sum_sizes(std::span<const std::byte> sizes, const ChunkSizes& expected,
                 std::vector<std::uint64_t>& ends) {
  if (expected.num_records > sizes.size()) {
    return damaged("it has ", expected.num_records,
                   " records, but their sizes take only ", sizes.size(),
                   " bytes");
  }
  ends.resize(static_cast<std::size_t>(expected.num_records));
  ByteCursor cursor(sizes);
  std::uint64_t sum = 0;
  for (std::uint64_t& end : ends) {
    std::uint64_t size = 0;
    if (!cursor.varint(size) || size > expected.decoded_size - sum) {
      return damaged("the sizes of its records exceed their sum, ",
                     expected.decoded_size);
    }
    sum += size;
    end = sum;
  }
  if (cursor.left() > 0) {
    return damaged("it has sizes of more than its ", expected.num_records,
                   " records");
  }
  if (sum == expected.decoded_size) return {};
  return damaged("the sizes of its records add up to ",
                 found(sum, expected.decoded_size));
}

// Decompresses the values of a simple chunk directly to `to`.
Status unpack_values(const StoredParts& parts, std::span<std::byte> to) {
  ByteCursor cursor(parts.values);
  std::uint64_t size = parts.values.size();
  if (parts.codec != Codec::kNone && !cursor.varint(size)) {
    return damaged("the size of its values cannot be read");
  }
  if (size != to.size()) {
    return damaged("the size of its values is ", found(size, to.size()));
  }
  return decompress(parts.codec, cursor.rest(), to);
}

Status decode_simple(std::span<const std::byte> data, const ChunkSizes& sizes,
                     DecodedChunk& to) {
  SimpleRecords records;
  TRY(unpack_simple(data, sizes, records));
  TRY(sum_sizes(records.sizes.bytes, sizes, to.ends));
  if (records.values.is_decompressed()) {
    to.values = std::move(records.values.buffer);
    return {};
  }
  if (!to.values.reset(sizes.decoded_size)) {
    return no_memory_for(sizes.decoded_size, " bytes of records");
  }
  std::ranges::copy(records.values.bytes, to.values.all().begin());
  return {};
}

// Returns the error for a walk that ended before the data.
Status truncation_error(const BlockWalk& walk) {
  return walk.status().ok() ? damaged("its data is truncated") : walk.status();
}

}  // namespace

std::string hex(std::uint64_t value) {
  std::array<char, 20> text;
  const int length =
      std::snprintf(text.data(), text.size(), "0x%" PRIx64, value);
  return std::string(text.data(), static_cast<std::size_t>(length));
}

Status unpack(Codec codec, std::span<const std::byte> stored,
              std::uint64_t max_bytes, const char* part_name,
              UnpackedPart& to) {
  std::uint64_t size = stored.size();
  ByteCursor cursor(stored);
  if (codec != Codec::kNone && !cursor.varint(size)) {
    return damaged("the length of its ", part_name, " cannot be read");
  }
  if (size > max_bytes || !is_plausible_size(codec, cursor.left(), size)) {
    return damaged("its ", part_name, " have ", size, " bytes in ",
                   stored.size(), ", expected at most ", max_bytes);
  }
  if (codec == Codec::kNone) {
    to.bytes = stored;
    return {};
  }
  if (!to.buffer.reset(size)) return no_memory_for("its ", part_name);
  to.bytes = to.buffer.all();
  return decompress(codec, cursor.rest(), to.buffer.all());
}

Status unpack_simple(std::span<const std::byte> data, const ChunkSizes& sizes,
                     SimpleRecords& to) {
  const auto parts = TRY(split_simple(data));
  TRY(unpack(parts.codec, parts.sizes, sizes.num_records * kMaxVarint, "sizes",
             to.sizes));
  TRY(unpack(parts.codec, parts.values, sizes.decoded_size, "values",
             to.values));
  const std::uint64_t size = to.values.bytes.size();
  if (size == sizes.decoded_size) return {};
  return damaged("the size of its values is ", found(size, sizes.decoded_size));
}

std::span<const std::byte> BlockWalk::next(std::uint64_t max_bytes) {
  if (position_ % kBlockBytes == 0 && !skip_header()) return {};
  const std::uint64_t run = std::min({max_bytes, raw_.end() - position_,
                                      kBlockBytes - position_ % kBlockBytes});
  const auto bytes = raw_.bytes.subspan(position_ - raw_.begin, run);
  position_ += run;
  return bytes;
}

bool BlockWalk::skip_header() {
  if (raw_.end() - position_ < kBlockHeaderBytes) return false;
  if (verify_ != Verify::kNone) {
    const auto header =
        raw_.bytes.subspan(position_ - raw_.begin, kBlockHeaderBytes);
    const auto stored = load_le<std::uint64_t>(header.data());
    const auto hash = HighwayHash::of(kRiegeliKey, header.subspan(8));
    if (hash != stored) {
      status_ = damaged("block header at offset ", position_, ": its hash is ",
                        found_hash(hash, stored));
      return false;
    }
  }
  position_ += kBlockHeaderBytes;
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

Status ChunkView::add_chunk_context(const Status& status) const {
  if (status.ok() || status.is_external()) return status;
  const bool is_damaged = status.code() == Code::kInvalidArgument;
  return Status(
      status.code(), "chunk at offset ", raw_.begin, ": ", status.message(),
      is_damaged ? ": the file is damaged, copy it or write it again" : "");
}

Status ChunkView::open(const RawBytes& raw, std::uint64_t limit,
                       Verify verify) {
  raw_ = raw;
  verify_ = verify;
  return add_chunk_context(read_header(limit));
}

Status ChunkView::read_header(std::uint64_t limit) {
  BlockWalk walk(raw_, verify_);
  std::array<std::byte, kChunkHeaderBytes> bytes;
  if (!walk.fill(bytes)) {
    TRY(walk.status());
    return damaged("its header of 40 bytes does not fit before offset ", limit);
  }
  if (verify_ != Verify::kNone) {
    const auto stored = load_le<std::uint64_t>(bytes.data());
    const auto hash = HighwayHash::of(kRiegeliKey, std::span(bytes).subspan(8));
    if (hash != stored) {
      return damaged("the hash of its header is ", found_hash(hash, stored));
    }
  }
  // Offset 0: hash of the header, 8: size of the data, 16: hash of the data,
  // 24: type (1 byte) and number of records (7 bytes), 32: decoded size.
  const auto word = load_le<std::uint64_t>(bytes.data() + 24);
  header_ = {load_le<std::uint64_t>(bytes.data() + 8),
             load_le<std::uint64_t>(bytes.data() + 16),
             static_cast<std::uint8_t>(word & 0xff),
             {word >> 8, load_le<std::uint64_t>(bytes.data() + 32)}};
  if (header_.sizes.decoded_size > kMaxDecodedBytes) {
    return damaged("its records have ", header_.sizes.decoded_size,
                   " bytes, expected at most ", kMaxDecodedBytes);
  }
  const std::uint64_t available = limit - raw_.begin;
  data_begin_ = walk.position();
  if (header_.data_size <= available &&
      header_.sizes.num_records <= available) {
    data_end_ = skip_bytes(raw_.begin, kChunkHeaderBytes + header_.data_size);
    if (data_end_ <= limit) return {};
  }
  return damaged("it has ", header_.data_size, " bytes of data and ",
                 header_.sizes.num_records,
                 " records, expected it to end at offset ", limit,
                 " or before");
}

BlockWalk ChunkView::walk_data() const {
  assert(is_complete());
  return BlockWalk({data_begin_, raw_.bytes.subspan(data_begin_ - raw_.begin,
                                                    data_end_ - data_begin_)},
                   verify_);
}

Status ChunkView::check_data(const HighwayHash& hash) const {
  if (verify_ != Verify::kAll || hash.value() == header_.data_hash) return {};
  return damaged("the hash of its data is ",
                 found_hash(hash.value(), header_.data_hash));
}

// Returns the data as one contiguous span.  Copies them to `spare` if block
// headers interrupt them.
Result<std::span<const std::byte>> ChunkView::find_data(
    ByteBuffer& spare) const {
  BlockWalk walk = walk_data();
  auto data = walk.next(header_.data_size);
  if (data.size() < header_.data_size) {
    if (!spare.reset(header_.data_size)) return no_memory_for("its data");
    walk = walk_data();
    if (!walk.fill(spare.all())) return truncation_error(walk);
    data = spare.all();
  }
  HighwayHash hash(kRiegeliKey);
  if (verify_ == Verify::kAll) hash.append(data);
  TRY(check_data(hash));
  return data;
}

Status ChunkView::copy_plain_record(
    std::span<std::byte> to, std::optional<UncheckedRecord>& unchecked) const {
  std::array<std::byte, kMaxPrefixBytes> prefix_buffer;
  auto prefix = std::span(prefix_buffer)
                    .first(std::min<std::size_t>(prefix_buffer.size(),
                                                 header_.data_size));
  BlockWalk walk = walk_data();
  if (!walk.fill(prefix)) return truncation_error(walk);
  ByteCursor cursor(prefix.subspan(1));
  std::uint64_t sizes_bytes = 0;
  std::uint64_t size = 0;
  if (!cursor.varint(sizes_bytes)) return damaged("its sizes cannot be read");
  const std::size_t before = cursor.left();
  if (!cursor.varint(size) || before - cursor.left() != sizes_bytes) {
    return damaged("the size of its record cannot be read");
  }
  prefix = prefix.first(prefix.size() - cursor.left());
  const std::uint64_t stored = header_.data_size - prefix.size();
  if (size != to.size() || stored != size) {
    return damaged("its record has ", size, " bytes of ",
                   found(stored, to.size()));
  }
  walk = walk_data();
  if (!walk.fill(prefix) || !walk.fill(to)) return truncation_error(walk);
  if (verify_ == Verify::kAll) {
    unchecked.emplace(UncheckedRecord{*this, HighwayHash(kRiegeliKey), to});
    unchecked->hash.append(prefix);
  }
  return {};
}

Status ChunkView::try_single_record(
    std::span<std::byte> to, ByteBuffer& spare,
    std::optional<UncheckedRecord>& unchecked) const {
  if (header_.type == kSimple) {
    std::array<std::byte, 1> codec;
    BlockWalk walk = walk_data();
    if (header_.data_size == 0) return damaged("it has no data");
    if (!walk.fill(codec)) return truncation_error(walk);
    if (codec[0] == std::byte{0}) return copy_plain_record(to, unchecked);
    const auto data = TRY(find_data(spare));
    return unpack_values(TRY(split_simple(data)), to);
  }
  DecodedChunk chunk;
  TRY(try_decode(chunk, spare));
  std::ranges::copy(chunk.record(0), to.begin());
  return {};
}

Status ChunkView::read_single_record(
    std::span<std::byte> to, ByteBuffer& spare,
    std::optional<UncheckedRecord>& unchecked) const {
  assert(header_.sizes.num_records == 1);
  assert(header_.sizes.decoded_size == to.size());
  return add_chunk_context(try_single_record(to, spare, unchecked));
}

Status ChunkView::decode(DecodedChunk& to, ByteBuffer& spare) const {
  return add_chunk_context(try_decode(to, spare));
}

Status ChunkView::try_decode(DecodedChunk& to, ByteBuffer& spare) const {
  const auto data = TRY(find_data(spare));
  if (header_.type == kSimple) return decode_simple(data, header_.sizes, to);
  if (header_.type == kTransposed) {
    return decode_transposed(data, header_.sizes, to);
  }
  return damaged("its type is ", hex(header_.type), ", expected 'r' or 't'");
}

Status RecordHashChecker::add(UncheckedRecord& record) {
  if (!unpaired_) {
    unpaired_.emplace(record);
    return {};
  }
  HighwayHash::append_both(unpaired_->hash, unpaired_->bytes, record.hash,
                           record.bytes);
  const Status status = check(*unpaired_);
  unpaired_.reset();
  return status.ok() ? check(record) : status;
}

Status RecordHashChecker::finish() {
  if (!unpaired_) return {};
  unpaired_->hash.append(unpaired_->bytes);
  const Status status = check(*unpaired_);
  unpaired_.reset();
  return status;
}

Status RecordHashChecker::check(const UncheckedRecord& record) {
  failed_record_ = record.number;
  return record.view.add_chunk_context(record.view.check_data(record.hash));
}

}  // namespace gristmill
