// Reads the lists of values that the features of a tf.train.Example hold.
//
// A list is the wire format of an Int64List, a FloatList or a BytesList, each
// of which repeats its field 1; numbers are packed or not, even in one list.
//
// Thread safety: plain functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.hpp"
#include "core/base/varint.hpp"

namespace gristmill {

// The values are the numbers of the fields of a Feature.
enum class ListKind : std::uint8_t {
  kNone = 0,
  kBytes = 1,
  kFloat = 2,
  kInt64 = 3,
};

// What the numbers of a list become.
enum class Number : std::uint8_t {
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
};

[[nodiscard]] std::string_view name_of(ListKind kind) noexcept;
[[nodiscard]] std::string_view name_of(Number number) noexcept;
[[nodiscard]] std::size_t bytes_of(Number number) noexcept;

// The kind of list that such numbers are read from.
[[nodiscard]] ListKind list_of(Number number) noexcept;

// Returns how many values a list has, or nothing where it is damaged; a list
// that is counted may still be found damaged when it is read.
// REQUIRES: kind is not kNone.
[[nodiscard]] std::optional<std::size_t> count_values(
    ListKind kind, std::span<const std::byte> list) noexcept;

// Writes the numbers of a list of the kind list_of(number) to all of `to`,
// which is aligned for them.  Fails if they are more or less than fit there,
// or if one is out of range for `number`.
Status read_numbers(Number number, std::span<const std::byte> list,
                    std::span<std::byte> to);

// Appends the values of a BytesList, which lie inside of `list`.
Status read_strings(std::span<const std::byte> list,
                    std::vector<std::span<const std::byte>>& values);

// Passes the field whose tag was read.  False if it does not end, or is a
// group, which no Example has.
[[nodiscard]] bool skip_field(ByteCursor& cursor, std::uint32_t tag) noexcept;

}  // namespace gristmill
