#include "core/array_record/transposed_chunk.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/varint.hpp"

namespace gristmill {
namespace {

// What a state does when the machine passes it.  The machine builds records
// from their last byte to their first.
enum class Op : std::uint8_t {
  kNothing,
  kRawRecord,          // A record that is no message: bytes of a buffer.
  kRecordStart,        // A record is complete.
  kSubmessageEnd,      // Remember where it ends ...
  kSubmessageStart,    // ... and write its length and tag.
  kTag,                // A tag alone: of a group.
  kTagAndInlineValue,  // A tag and a varint of one byte.
  kTagAndVarint,       // A tag and `length` bytes that make a varint.
  kTagAndFixed,        // A tag and `length` bytes.
  kTagAndString,       // A tag, and from the buffer a length and its bytes.
};

// Tags that are no protobuf tags.
enum SpecialTag : std::uint32_t {
  kNoOpTag = 0,
  kRawRecordTag = 1,
  kSubmessageStartTag = 2,
  kRecordStartTag = 3,
};

// The wire types of protobuf, and one for the end of a submessage.
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
constexpr std::size_t kMaxTag = 5;

// A message needs a few transitions for a byte at most.
constexpr std::uint64_t kMaxTransitionsPerByte = 32;
constexpr std::uint64_t kSpareTransitions = 4096;

struct State {
  Op op = Op::kNothing;
  bool implicit = false;      // The way on is not read but known.
  std::uint8_t length = 0;    // Bytes to take; or the inline value.
  std::uint8_t tag_size = 0;  // Bytes of `tag` in use.
  std::array<std::byte, kMaxTag> tag{};
  std::uint32_t buffer = 0;
  std::uint32_t next = 0;
};

Status damaged(const char* what) {
  return Status(Code::kInvalidArgument,
                std::string("its transposed form is damaged: ") + what);
}

template <std::size_t N>
std::size_t write_varint(std::uint64_t value, std::array<std::byte, N>& to) {
  std::size_t size = 0;
  for (; value >= 0x80; value >>= 7) {
    to[size++] = static_cast<std::byte>((value & 0x7f) | 0x80);
  }
  to[size++] = static_cast<std::byte>(value);
  return size;
}

class Transposed {
 public:
  Transposed(const ChunkSizes& sizes, DecodedChunk& to)
      : sizes_(sizes), to_(to) {}

  Status run(std::span<const std::byte> data);

 private:
  Status read_buffers(ByteCursor& header, ByteCursor& data);
  Status cut_buffers(const std::vector<std::uint64_t>& lengths);
  Status read_states(ByteCursor& header);
  Status read_tags(ByteCursor& header, std::vector<std::uint32_t>& tags);
  Status set_state(State& state, std::uint32_t tag, ByteCursor& subtypes);
  Status set_field(State& state, std::uint32_t tag, ByteCursor& subtypes);
  Status run_machine(ByteCursor transitions);
  Status execute(const State& state);
  Status put_from_buffer(const State& state);
  Status put_string(const State& state);
  Status put_raw_record(const State& state);
  Status start_submessage();
  Status start_record();
  Status finish();

  // Writes before what was written so far; false if there is no room.
  [[nodiscard]] bool put(std::span<const std::byte> bytes) {
    if (bytes.size() > front_) return false;
    front_ -= bytes.size();
    if (!bytes.empty()) std::memcpy(out_ + front_, bytes.data(), bytes.size());
    return true;
  }
  [[nodiscard]] bool put_tag(const State& state) {
    return put(std::span(state.tag).first(state.tag_size));
  }
  static Status too_long() { return damaged("the records exceed their size"); }

  const ChunkSizes sizes_;
  DecodedChunk& to_;
  Codec codec_ = Codec::kNone;
  std::vector<Unpacked> buckets_;
  std::vector<ByteCursor> buffers_;
  std::vector<State> states_;
  std::uint32_t first_ = 0;

  std::byte* out_ = nullptr;
  std::size_t front_ = 0;           // Bytes still to be written before out_.
  std::uint64_t records_left_ = 0;  // Records not yet complete.
  struct Open {
    std::size_t end;     // front_ when the submessage ended.
    const State* state;  // The state with its tag.
  };
  std::vector<Open> open_;  // Submessages not yet started.
};

Status Transposed::run(std::span<const std::byte> bytes) {
  ByteCursor data(bytes);
  std::uint8_t byte = 0;
  std::uint64_t header_size = 0;
  std::span<const std::byte> stored;
  if (!data.byte(byte) || !codec_of(byte))
    return damaged("unknown compression");
  codec_ = *codec_of(byte);
  if (!data.varint(header_size) || !data.take(header_size, stored)) {
    return damaged("the header exceeds the data");
  }
  Unpacked header;
  constexpr std::uint64_t max_header = std::uint64_t{1} << 30;
  Status status = unpack(codec_, stored, max_header, "header", header);
  if (!status.ok()) return status;
  ByteCursor cursor(header.bytes);
  status = read_buffers(cursor, data);
  if (!status.ok()) return status;
  status = read_states(cursor);
  if (!status.ok()) return status;
  // No bound on the size follows from the data: known transitions repeat what
  // is in the header.  Memory that is not written to costs nothing.
  if (!to_.values.reset(sizes_.decoded_size)) {
    return Status(Code::kNoMemory, "no memory for its records");
  }
  Unpacked transitions;
  status =
      unpack(codec_, data.rest(),
             kSpareTransitions + kMaxTransitionsPerByte *
                                     (sizes_.decoded_size + sizes_.num_records),
             "transitions", transitions);
  if (!status.ok()) return status;
  return run_machine(ByteCursor(transitions.bytes));
}

// Buckets hold buffers back to back and are compressed one by one.  All of
// them together are the records, but for what the machine itself produces.
Status Transposed::read_buffers(ByteCursor& header, ByteCursor& data) {
  std::uint32_t num_buckets = 0;
  std::uint32_t num_buffers = 0;
  if (!header.varint32(num_buckets) || !header.varint32(num_buffers) ||
      num_buckets > header.left() || num_buffers > header.left()) {
    return damaged("too many buffers");
  }
  std::uint64_t most = sizes_.decoded_size + sizes_.num_records * kMaxVarint;
  buckets_.resize(num_buckets);
  for (Unpacked& bucket : buckets_) {
    std::uint64_t size = 0;
    std::span<const std::byte> stored;
    if (!header.varint(size) || !data.take(size, stored)) {
      return damaged("a bucket exceeds the data");
    }
    Status status = unpack(codec_, stored, most, "buckets", bucket);
    if (!status.ok()) return status;
    most -= bucket.bytes.size();
  }
  std::vector<std::uint64_t> lengths(num_buffers);
  for (std::uint64_t& length : lengths) {
    if (!header.varint(length)) return damaged("a buffer has no length");
  }
  return cut_buffers(lengths);
}

Status Transposed::cut_buffers(const std::vector<std::uint64_t>& lengths) {
  auto bucket = buckets_.begin();
  ByteCursor rest({});
  const auto refill = [&] {
    while (rest.left() == 0 && bucket != buckets_.end()) {
      rest = ByteCursor(bucket->bytes);
      ++bucket;
    }
  };
  for (const std::uint64_t length : lengths) {
    refill();
    std::span<const std::byte> bytes;
    if (!rest.take(length, bytes))
      return damaged("a buffer exceeds its bucket");
    buffers_.emplace_back(bytes);
  }
  refill();
  if (rest.left() > 0) return damaged("a bucket has more than its buffers");
  return {};
}

Status Transposed::read_tags(ByteCursor& header,
                             std::vector<std::uint32_t>& tags) {
  std::uint32_t count = 0;
  if (!header.varint32(count) || count > header.left()) {
    return damaged("too many states");
  }
  tags.resize(count);
  for (std::uint32_t& tag : tags) {
    if (!header.varint32(tag)) return damaged("a state has no tag");
  }
  return {};
}

Status Transposed::read_states(ByteCursor& header) {
  std::vector<std::uint32_t> tags;
  Status status = read_tags(header, tags);
  if (!status.ok()) return status;
  const auto count = static_cast<std::uint32_t>(tags.size());
  states_.resize(count);
  for (State& state : states_) {
    if (!header.varint32(state.next)) return damaged("a state leads nowhere");
    if (state.next >= count) {
      state.implicit = true;
      state.next -= count;
    }
    if (state.next >= count) return damaged("a state leads too far");
  }
  std::uint64_t num_subtypes = 0;
  for (const std::uint32_t tag : tags) {
    num_subtypes += tag > kRecordStartTag && tag % 8 == kVarint;
  }
  std::span<const std::byte> bytes;
  if (!header.take(num_subtypes, bytes)) return damaged("subtypes are missing");
  ByteCursor subtypes(bytes);
  for (std::uint32_t i = 0; i < count; ++i) {
    State& state = states_[i];
    status = set_state(state, tags[i], subtypes);
    if (!status.ok()) return status;
    const bool buffered =
        state.op == Op::kRawRecord || state.op == Op::kTagAndVarint ||
        state.op == Op::kTagAndFixed || state.op == Op::kTagAndString;
    if (buffered &&
        (!header.varint32(state.buffer) || state.buffer >= buffers_.size())) {
      return damaged("a state has no buffer");
    }
  }
  if (count > 0 && (!header.varint32(first_) || first_ >= count)) {
    return damaged("there is no first state");
  }
  return {};
}

Status Transposed::set_state(State& state, std::uint32_t tag,
                             ByteCursor& subtypes) {
  switch (tag) {
    case kNoOpTag:
      state.op = Op::kNothing;
      return {};
    case kRawRecordTag:
      state.op = Op::kRawRecord;
      return {};
    case kSubmessageStartTag:
      state.op = Op::kSubmessageStart;
      return {};
    case kRecordStartTag:
      state.op = Op::kRecordStart;
      return {};
    default:
      return set_field(state, tag, subtypes);
  }
}

Status Transposed::set_field(State& state, std::uint32_t tag,
                             ByteCursor& subtypes) {
  if (tag < 8) return damaged("a tag has no field number");
  switch (tag % 8) {
    case kVarint: {
      std::uint8_t subtype = 0;
      if (!subtypes.byte(subtype) || subtype > kLastInlineValue) {
        return damaged("unknown subtype");
      }
      const bool is_inline = subtype >= kFirstInlineValue;
      state.op = is_inline ? Op::kTagAndInlineValue : Op::kTagAndVarint;
      state.length = static_cast<std::uint8_t>(
          is_inline ? subtype - kFirstInlineValue : subtype + 1);
      break;
    }
    case kFixed64:
      state.op = Op::kTagAndFixed;
      state.length = 8;
      break;
    case kFixed32:
      state.op = Op::kTagAndFixed;
      state.length = 4;
      break;
    case kLengthDelimited:
      state.op = Op::kTagAndString;
      break;
    case kStartGroup:
    case kEndGroup:
      state.op = Op::kTag;
      break;
    case kSubmessage:
      state.op = Op::kSubmessageEnd;
      tag -= kSubmessage - kLengthDelimited;
      break;
    default:
      return damaged("unknown wire type");
  }
  state.tag_size = static_cast<std::uint8_t>(write_varint(tag, state.tag));
  return {};
}

Status Transposed::run_machine(ByteCursor transitions) {
  out_ = to_.values.all().data();
  front_ = to_.values.all().size();
  records_left_ = sizes_.num_records;
  to_.ends.resize(static_cast<std::size_t>(sizes_.num_records));
  if (states_.empty()) return finish();
  // Without a byte read, a machine that does not loop passes no more states.
  const std::uint64_t most_unread = 4 * (states_.size() + 1);
  std::uint64_t unread = 0;
  const State* state = &states_[first_];
  std::uint32_t free_steps = state->implicit ? 1 : 0;
  for (;;) {
    Status status = execute(*state);
    if (!status.ok()) return status;
    std::size_t next = state->next;
    if (free_steps == 0) {
      std::uint8_t byte = 0;
      if (!transitions.byte(byte)) return finish();
      next += byte >> 2;
      if (next >= states_.size()) return damaged("a transition leads too far");
      free_steps = (byte & 3u) + (states_[next].implicit ? 1 : 0);
      unread = 0;
    } else {
      if (!states_[next].implicit) --free_steps;
      if (++unread > most_unread) return damaged("its states are a loop");
    }
    state = &states_[next];
  }
}

Status Transposed::execute(const State& state) {
  switch (state.op) {
    case Op::kNothing:
      return {};
    case Op::kRawRecord:
      return put_raw_record(state);
    case Op::kRecordStart:
      return start_record();
    case Op::kSubmessageEnd:
      // Each of them takes two bytes at least.
      if (open_.size() >= front_) return too_long();
      open_.push_back({front_, &state});
      return {};
    case Op::kSubmessageStart:
      return start_submessage();
    case Op::kTag:
      return put_tag(state) ? Status() : too_long();
    case Op::kTagAndInlineValue: {
      const std::array value = {static_cast<std::byte>(state.length)};
      return put(value) && put_tag(state) ? Status() : too_long();
    }
    case Op::kTagAndVarint:
    case Op::kTagAndFixed:
      return put_from_buffer(state);
    case Op::kTagAndString:
      return put_string(state);
  }
  return {};
}

Status Transposed::put_from_buffer(const State& state) {
  std::span<const std::byte> bytes;
  if (!buffers_[state.buffer].take(state.length, bytes)) {
    return damaged("a buffer ends early");
  }
  if (!put(bytes)) return too_long();
  if (state.op == Op::kTagAndVarint) {
    // The bits that say that more bytes follow are not stored.
    for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
      out_[front_ + i] |= std::byte{0x80};
    }
  }
  return put_tag(state) ? Status() : too_long();
}

Status Transposed::put_string(const State& state) {
  ByteCursor& buffer = buffers_[state.buffer];
  const auto start = buffer.rest();
  std::uint32_t length = 0;
  std::span<const std::byte> bytes;
  if (!buffer.varint32(length) || !buffer.take(length, bytes)) {
    return damaged("a buffer ends early");
  }
  const bool fits =
      put(start.first(start.size() - buffer.left())) && put_tag(state);
  return fits ? Status() : too_long();
}

// The lengths of such records are in the last buffer.
Status Transposed::put_raw_record(const State& state) {
  std::uint32_t length = 0;
  std::span<const std::byte> bytes;
  if (!buffers_.back().varint32(length) ||
      !buffers_[state.buffer].take(length, bytes)) {
    return damaged("a buffer ends early");
  }
  return put(bytes) ? start_record() : too_long();
}

Status Transposed::start_submessage() {
  if (open_.empty()) return damaged("a submessage starts that does not end");
  const Open ended = open_.back();
  open_.pop_back();
  std::array<std::byte, kMaxVarint> length;
  const std::size_t size = write_varint(ended.end - front_, length);
  const bool fits = put(std::span(length).first(size)) && put_tag(*ended.state);
  return fits ? Status() : too_long();
}

Status Transposed::start_record() {
  if (!open_.empty()) return damaged("a record starts inside a submessage");
  if (records_left_ == 0) return damaged("there are too many records");
  // Records come last to first; one ends where the next starts.
  --records_left_;
  if (records_left_ > 0) to_.ends[records_left_ - 1] = front_;
  return {};
}

Status Transposed::finish() {
  if (!open_.empty()) return damaged("a submessage has no start");
  if (records_left_ > 0) return damaged("there are too few records");
  if (front_ > 0) return damaged("the records are smaller than their size");
  if (!to_.ends.empty()) to_.ends.back() = sizes_.decoded_size;
  return {};
}

}  // namespace

Status decode_transposed(std::span<const std::byte> data,
                         const ChunkSizes& sizes, DecodedChunk& to) {
  return Transposed(sizes, to).run(data);
}

}  // namespace gristmill
