// Decodes chunks whose records, protocol buffers, were transposed.
//
// The writer takes messages apart by field, so that equal fields compress
// together, and stores a program that puts them together again: a machine of
// states, and buffers that it takes bytes from.
//
// Thread safety: functions of their arguments; a program belongs to one thread.
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

// Decodes the data of a transposed chunk.  It is safe for any bytes; it never
// writes more than the sizes allow, and ends in time bounded by them.
Status decode_transposed(std::span<const std::byte> data,
                         const ChunkSizes& sizes, DecodedChunk& to);

// What a state does when the machine passes it.  The machine builds records
// from their last byte to their first.
enum class TransposedOp : std::uint8_t {
  kNothing,
  kRecordStart,      // A record is complete.
  kSubmessageEnd,    // Remember where it ends ...
  kSubmessageStart,  // ... and write its length and tag.
  kTag,              // A tag, and the value if that is known: of one byte.
  // Those from here on have a buffer.
  kRawRecord,     // A record that is no message: bytes of the buffer.
  kTagAndVarint,  // A tag and `length` bytes that make a varint.
  kTagAndFixed,   // A tag and `length` bytes.
  kTagAndString,  // A tag, and from the buffer a length and its bytes.
};

struct TransposedState {
  TransposedOp op = TransposedOp::kNothing;
  bool implicit = false;      // The way on is not read but known.
  std::uint8_t length = 0;    // Bytes to take from the buffer.
  std::uint8_t tag_size = 0;  // Bytes of `tag` in use.
  std::array<std::byte, 6> tag{};
  std::uint32_t buffer = 0;
  std::uint32_t next = 0;
};

struct TransposedProgram {
  std::vector<Unpacked> buckets;  // What the buffers are parts of.
  std::vector<ByteCursor> buffers;
  std::vector<TransposedState> states;
  std::uint32_t first = 0;  // The state to begin with, if there is any.
  Unpacked transitions;     // Where to go on from one that is not implicit.
};

// Reads the program from the data of a chunk.  Every number in it is in range.
Status read_program(std::span<const std::byte> data, const ChunkSizes& sizes,
                    TransposedProgram& to);

inline Status malformed(const char* what) {
  return damaged("its transposed form is damaged: ", what);
}

}  // namespace gristmill
