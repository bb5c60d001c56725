// Decodes chunks whose records are transposed protocol buffers.
//
// The writer splits messages by field, so that equal fields compress together.
// It stores a program that reassembles the messages: a state machine, and
// buffers from which the machine takes bytes.
//
// Thread safety: pure functions; a program belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/array_record/codec.hpp"
#include "core/array_record/decoded_chunk.hpp"
#include "core/base/status.hpp"
#include "core/base/varint.hpp"
#include "core/files/verify.hpp"

namespace gristmill {

// Decodes the data of a transposed chunk.  Any input is safe: the sizes limit
// both the bytes written and the time taken.
Status decode_transposed(std::span<const std::byte> data,
                         const ChunkSizes& sizes, DecodedChunk& to);

// The action of a state when the machine enters it.  The machine builds records
// from their last byte to their first.
enum class TransposedOp : std::uint8_t {
  kNothing,
  kRecordStart,      // A record is complete.
  kSubmessageEnd,    // Save the end of a submessage.
  kSubmessageStart,  // Write the length and the tag of a submessage.
  kTag,              // A tag, and its value if that is a constant byte.
  // The operations below use a buffer.  read_program() relies on this order.
  kRawRecord,     // A record that is not a message: bytes of the buffer.
  kTagAndVarint,  // A tag and a varint of `length` bytes.
  kTagAndFixed,   // A tag and `length` bytes.
  kTagAndString,  // A tag, then a length and its bytes from the buffer.
};

struct TransposedState {
  TransposedOp op = TransposedOp::kNothing;
  bool implicit = false;      // Leaving this state needs no transition byte.
  std::uint8_t length = 0;    // Bytes to take from the buffer.
  std::uint8_t tag_size = 0;  // Bytes of `tag` in use.
  std::array<std::byte, 6> tag{};
  std::uint32_t buffer = 0;  // Index in TransposedProgram::buffers.
  // Index of the next state.  A transition byte adds up to 63 to it.
  std::uint32_t next = 0;
};

struct TransposedProgram {
  std::vector<UnpackedPart> buckets;  // The buffers are parts of these.
  std::vector<ByteCursor> buffers;
  std::vector<TransposedState> states;
  std::uint32_t first = 0;   // The initial state, if there are any states.
  UnpackedPart transitions;  // The transition bytes; see Machine::run().
};

// Reads the program from the data of a chunk.  Checks that all indices are in
// range.
Status read_program(std::span<const std::byte> data, const ChunkSizes& sizes,
                    TransposedProgram& to);

inline Status malformed(const char* what) {
  return damaged("its transposed form is damaged: ", what);
}

}  // namespace gristmill
