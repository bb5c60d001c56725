#include <algorithm>

#include "core/array_record/transposed_chunk.hpp"

namespace gristmill {
namespace {

using Op = TransposedOp;

// Operations for tags that are not protobuf tags, by tag.
constexpr std::array kSpecialOps = {Op::kNothing, Op::kRawRecord,
                                    Op::kSubmessageStart, Op::kRecordStart};

// The wire types of protobuf, and an extra type for the end of a submessage.
enum WireType : std::uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kLengthDelimited = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
  kSubmessage = 6,
};

constexpr std::uint8_t kFirstInlineValue = 10;
constexpr std::uint8_t kLastInlineValue = kFirstInlineValue + 127;

constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{1} << 30;

// Limits the decompressed transitions, which is a safety limit: a message needs
// at most a few transitions per byte.
constexpr std::uint64_t kMaxTransitionsPerByte = 32;
constexpr std::uint64_t kSpareTransitions = 4096;

class ProgramReader {
 public:
  ProgramReader(const ChunkSizes& sizes, TransposedProgram& to)
      : sizes_(sizes), to_(to) {}

  Status run(std::span<const std::byte> bytes);

 private:
  Status read_buffers(ByteCursor& header, ByteCursor& data);
  Status split_buckets(const std::vector<std::uint64_t>& lengths);
  Status read_states(ByteCursor& header);
  Status read_tags(ByteCursor& header);
  Status read_successors(ByteCursor& header);

  // Each state that writes a varint has one subtype.
  [[nodiscard]] std::uint64_t count_subtypes() const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(tags_, [](std::uint32_t tag) {
          return tag >= kSpecialOps.size() && tag % 8 == kVarint;
        }));
  }
  static Status set_op(TransposedState& state, std::uint32_t tag,
                       ByteCursor& subtypes);
  static Status set_varint(TransposedState& state, ByteCursor& subtypes);

  const ChunkSizes sizes_;
  TransposedProgram& to_;
  Codec codec_ = Codec::kNone;
  std::vector<std::uint32_t> tags_;  // The tag of each state.
};

Status ProgramReader::run(std::span<const std::byte> bytes) {
  ByteCursor data(bytes);
  std::uint8_t byte = 0;
  std::uint64_t header_size = 0;
  std::span<const std::byte> stored;
  if (!data.byte(byte) || !codec_of(byte)) {
    return malformed("unknown compression");
  }
  codec_ = *codec_of(byte);
  if (!data.varint(header_size) || !data.take(header_size, stored)) {
    return malformed("the header exceeds the data");
  }
  UnpackedPart header;
  TRY(unpack(codec_, stored, kMaxHeaderBytes, "header", header));
  ByteCursor cursor(header.bytes);
  TRY(read_buffers(cursor, data));
  TRY(read_states(cursor));
  return unpack(
      codec_, data.rest(),
      kSpareTransitions +
          kMaxTransitionsPerByte * (sizes_.decoded_size + sizes_.num_records),
      "transitions", to_.transitions);
}

// A bucket is a concatenation of buffers.  Each bucket is compressed
// separately.  Together the buckets hold the bytes of the records, except for
// the bytes that the state machine of transposed_chunk.cpp generates.
Status ProgramReader::read_buffers(ByteCursor& header, ByteCursor& data) {
  std::uint32_t num_buckets = 0;
  std::uint32_t num_buffers = 0;
  if (!header.varint32(num_buckets) || !header.varint32(num_buffers) ||
      num_buckets > header.left() || num_buffers > header.left()) {
    return malformed("too many buffers");
  }
  std::uint64_t max_bucket_bytes =
      sizes_.decoded_size + sizes_.num_records * kMaxVarint;
  to_.buckets.resize(num_buckets);
  for (UnpackedPart& bucket : to_.buckets) {
    std::uint64_t size = 0;
    std::span<const std::byte> stored;
    if (!header.varint(size) || !data.take(size, stored)) {
      return malformed("a bucket exceeds the data");
    }
    TRY(unpack(codec_, stored, max_bucket_bytes, "buckets", bucket));
    max_bucket_bytes -= bucket.bytes.size();
  }
  std::vector<std::uint64_t> lengths(num_buffers);
  for (std::uint64_t& length : lengths) {
    if (!header.varint(length)) return malformed("a buffer has no length");
  }
  return split_buckets(lengths);
}

Status ProgramReader::split_buckets(const std::vector<std::uint64_t>& lengths) {
  auto bucket = to_.buckets.begin();
  ByteCursor bucket_bytes({});
  const auto refill = [&] {
    while (bucket_bytes.left() == 0 && bucket != to_.buckets.end()) {
      bucket_bytes = ByteCursor(bucket->bytes);
      ++bucket;
    }
  };
  for (const std::uint64_t length : lengths) {
    refill();
    std::span<const std::byte> bytes;
    if (!bucket_bytes.take(length, bytes)) {
      return malformed("a buffer exceeds its bucket");
    }
    to_.buffers.emplace_back(bytes);
  }
  refill();
  if (bucket_bytes.left() > 0) {
    return malformed("a bucket has more than its buffers");
  }
  return {};
}

Status ProgramReader::read_tags(ByteCursor& header) {
  std::uint32_t count = 0;
  if (!header.varint32(count) || count > header.left()) {
    return malformed("too many states");
  }
  tags_.resize(count);
  for (std::uint32_t& tag : tags_) {
    if (!header.varint32(tag)) return malformed("a state has no tag");
  }
  return {};
}

// Reads the successor of each state, or the first of its possible successors.
Status ProgramReader::read_successors(ByteCursor& header) {
  const auto count = static_cast<std::uint32_t>(tags_.size());
  to_.states.resize(count);
  for (TransposedState& state : to_.states) {
    if (!header.varint32(state.next)) {
      return malformed("the successor of a state is not readable");
    }
    if (state.next >= count) {
      state.implicit = true;
      state.next -= count;
    }
    if (state.next >= count) {
      return malformed("the successor of a state is out of range");
    }
  }
  return {};
}

Status ProgramReader::read_states(ByteCursor& header) {
  TRY(read_tags(header));
  TRY(read_successors(header));
  std::span<const std::byte> bytes;
  if (!header.take(count_subtypes(), bytes)) {
    return malformed("subtypes are missing");
  }
  ByteCursor subtypes(bytes);
  for (std::size_t i = 0; i < tags_.size(); ++i) {
    TransposedState& state = to_.states[i];
    TRY(set_op(state, tags_[i], subtypes));
    if (state.op < Op::kRawRecord) continue;  // Uses no buffer; see the enum.
    if (!header.varint32(state.buffer) || state.buffer >= to_.buffers.size()) {
      return malformed("a state has no buffer");
    }
  }
  if (!tags_.empty() &&
      (!header.varint32(to_.first) || to_.first >= tags_.size())) {
    return malformed("there is no first state");
  }
  return {};
}

Status ProgramReader::set_op(TransposedState& state, std::uint32_t tag,
                             ByteCursor& subtypes) {
  if (tag < kSpecialOps.size()) {
    state.op = kSpecialOps[tag];
    return {};
  }
  if (tag < 8) return malformed("a tag has no field number");
  const std::uint32_t type = tag % 8;
  if (type == kSubmessage) tag -= kSubmessage - kLengthDelimited;
  state.tag_size = static_cast<std::uint8_t>(put_varint(state.tag.data(), tag) -
                                             state.tag.data());
  switch (type) {
    case kVarint:
      return set_varint(state, subtypes);
    case kFixed64:
    case kFixed32:
      state.op = Op::kTagAndFixed;
      state.length = type == kFixed64 ? 8 : 4;
      return {};
    case kLengthDelimited:
      state.op = Op::kTagAndString;
      return {};
    case kStartGroup:
    case kEndGroup:
      state.op = Op::kTag;
      return {};
    case kSubmessage:
      state.op = Op::kSubmessageEnd;
      return {};
    default:
      return malformed("unknown wire type");
  }
}

Status ProgramReader::set_varint(TransposedState& state, ByteCursor& subtypes) {
  std::uint8_t subtype = 0;
  if (!subtypes.byte(subtype) || subtype > kLastInlineValue) {
    return malformed("unknown subtype");
  }
  if (subtype >= kFirstInlineValue) {
    state.op = Op::kTag;
    state.tag[state.tag_size++] =
        static_cast<std::byte>(subtype - kFirstInlineValue);
  } else {
    state.op = Op::kTagAndVarint;
    state.length = static_cast<std::uint8_t>(subtype + 1);
  }
  return {};
}

}  // namespace

Status read_program(std::span<const std::byte> data, const ChunkSizes& sizes,
                    TransposedProgram& to) {
  return ProgramReader(sizes, to).run(data);
}

}  // namespace gristmill
