#include "core/array_record/transposed_chunk.hpp"

#include <cstring>

namespace gristmill {
namespace {

using Op = TransposedOp;
using State = TransposedState;

// Runs a program.  It writes the records backwards, from the end of the last
// record.
class Machine {
 public:
  Machine(TransposedProgram& program, const ChunkSizes& sizes, DecodedChunk& to)
      : states_(program.states),
        buffers_(program.buffers),
        sizes_(sizes),
        to_(to),
        records_(to.values.all().data()),
        free_bytes_(to.values.all().size()),
        records_left_(sizes.num_records) {
    to_.ends.resize(static_cast<std::size_t>(sizes.num_records));
  }

  // Starts at state `first`.
  Status run(std::uint32_t first, ByteCursor transitions);

 private:
  Status execute(const State& state);
  Status put_from_buffer(const State& state);
  Status put_string(const State& state);
  Status put_raw_record(const State& state);
  Status end_submessage(const State& state);
  Status start_submessage();
  Status start_record();
  Status finish();

  // Writes `bytes` before the bytes written so far.  Returns false if they do
  // not fit.
  [[nodiscard]] bool put(std::span<const std::byte> bytes) {
    if (bytes.size() > free_bytes_) return false;
    free_bytes_ -= bytes.size();
    if (!bytes.empty()) {
      std::memcpy(records_ + free_bytes_, bytes.data(), bytes.size());
    }
    return true;
  }
  [[nodiscard]] bool put_tag(const State& state) {
    return put(std::span(state.tag).first(state.tag_size));
  }
  static Status too_long() {
    return malformed("the records exceed their size");
  }

  const std::vector<State>& states_;
  std::vector<ByteCursor>& buffers_;
  const ChunkSizes sizes_;
  DecodedChunk& to_;
  std::byte* const records_;
  std::size_t free_bytes_;  // Unwritten bytes, all at the start of records_.
  std::uint64_t records_left_;  // Records that are not complete.
  struct OpenSubmessage {
    std::size_t end;     // free_bytes_ at the end of the submessage.
    const State* state;  // The state that holds its tag.
  };
  // Submessages whose start is still to come.
  std::vector<OpenSubmessage> open_submessages_;
};

// The upper 6 bits of a transition byte are added to the index of the next
// state.  The lower 2 bits count further transitions that need no byte.
Status Machine::run(std::uint32_t first, ByteCursor transitions) {
  if (states_.empty()) return finish();
  // A program without loops passes at most this many states between two bytes
  // of transitions: implicit_steps is at most 4, and passing implicit states,
  // at most all of them, does not use up a step.
  const std::uint64_t max_free_steps = 4 * (states_.size() + 1);
  std::uint64_t free_steps = 0;
  const State* state = &states_[first];
  // Transitions to come that need no byte.  One to an implicit state leaves the
  // count unchanged, because that state adds the transition out of it.
  std::uint32_t implicit_steps = state->implicit ? 1 : 0;
  for (;;) {
    TRY(execute(*state));
    std::size_t next = state->next;
    if (implicit_steps == 0) {
      std::uint8_t byte = 0;
      if (!transitions.byte(byte)) return finish();
      next += byte >> 2;
      if (next >= states_.size())
        return malformed("the target of a transition is out of range");
      implicit_steps = (byte & 3u) + (states_[next].implicit ? 1 : 0);
      free_steps = 0;
    } else {
      if (!states_[next].implicit) --implicit_steps;
      if (++free_steps > max_free_steps) {
        return malformed("its states are a loop");
      }
    }
    state = &states_[next];
  }
}

Status Machine::execute(const State& state) {
  switch (state.op) {
    case Op::kNothing:
      return {};
    case Op::kRecordStart:
      return start_record();
    case Op::kSubmessageEnd:
      return end_submessage(state);
    case Op::kSubmessageStart:
      return start_submessage();
    case Op::kTag:
      return put_tag(state) ? Status() : too_long();
    case Op::kRawRecord:
      return put_raw_record(state);
    case Op::kTagAndVarint:
    case Op::kTagAndFixed:
      return put_from_buffer(state);
    case Op::kTagAndString:
      return put_string(state);
  }
  return {};
}

Status Machine::put_from_buffer(const State& state) {
  std::span<const std::byte> bytes;
  if (!buffers_[state.buffer].take(state.length, bytes)) {
    return malformed("a buffer ends early");
  }
  if (!put(bytes)) return too_long();
  if (state.op == Op::kTagAndVarint) {
    // The continuation bits of a varint are not stored.
    for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
      records_[free_bytes_ + i] |= std::byte{0x80};
    }
  }
  return put_tag(state) ? Status() : too_long();
}

Status Machine::put_string(const State& state) {
  ByteCursor& buffer = buffers_[state.buffer];
  const auto start = buffer.rest();
  std::uint32_t length = 0;
  std::span<const std::byte> bytes;
  if (!buffer.varint32(length) || !buffer.take(length, bytes)) {
    return malformed("a buffer ends early");
  }
  const bool fits =
      put(start.first(start.size() - buffer.left())) && put_tag(state);
  return fits ? Status() : too_long();
}

// The last buffer holds the lengths of such records.
Status Machine::put_raw_record(const State& state) {
  std::uint32_t length = 0;
  std::span<const std::byte> bytes;
  if (!buffers_.back().varint32(length) ||
      !buffers_[state.buffer].take(length, bytes)) {
    return malformed("a buffer ends early");
  }
  return put(bytes) ? start_record() : too_long();
}

Status Machine::end_submessage(const State& state) {
  // Each submessage needs at least two bytes.
  if (open_submessages_.size() >= free_bytes_) return too_long();
  open_submessages_.push_back({free_bytes_, &state});
  return {};
}

Status Machine::start_submessage() {
  if (open_submessages_.empty()) {
    return malformed("a submessage starts that does not end");
  }
  const OpenSubmessage submessage = open_submessages_.back();
  open_submessages_.pop_back();
  std::array<std::byte, kMaxVarint> length;
  const std::byte* const end =
      put_varint(length.data(), submessage.end - free_bytes_);
  const bool fits = put({length.data(), end}) && put_tag(*submessage.state);
  return fits ? Status() : too_long();
}

Status Machine::start_record() {
  if (!open_submessages_.empty()) {
    return malformed("a record starts inside a submessage");
  }
  if (records_left_ == 0) return malformed("there are too many records");
  // The records come in reverse order; each one ends where the next one starts.
  --records_left_;
  if (records_left_ > 0) to_.ends[records_left_ - 1] = free_bytes_;
  return {};
}

Status Machine::finish() {
  if (!open_submessages_.empty()) return malformed("a submessage has no start");
  if (records_left_ > 0) return malformed("there are too few records");
  if (free_bytes_ > 0) {
    return malformed("the records are smaller than their size");
  }
  if (!to_.ends.empty()) to_.ends.back() = sizes_.decoded_size;
  return {};
}

}  // namespace

Status decode_transposed(std::span<const std::byte> data,
                         const ChunkSizes& sizes, DecodedChunk& to) {
  TransposedProgram program;
  TRY(read_program(data, sizes, program));
  // The size of the data does not bound the size of the records, because
  // implicit transitions repeat bytes of the header.  Memory costs nothing
  // until it is written.
  if (!to.values.reset(sizes.decoded_size)) return no_memory_for("its records");
  return Machine(program, sizes, to)
      .run(program.first, ByteCursor(program.transitions.bytes));
}

}  // namespace gristmill
