// The fields of a protocol buffer, by field number.  Holds only the fields that
// the footer of a file needs: numbers 0 to 4, of wire types 0 (varint) and 2
// (length-delimited).  A field that is missing is 0 or empty.
//
// Thread safety: none; plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/varint.hpp"

namespace gristmill {

struct Fields {
  std::array<std::uint64_t, 5> numbers{};
  std::array<std::span<const std::byte>, 5> bytes{};

  // Returns false if the message is malformed.
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

}  // namespace gristmill
