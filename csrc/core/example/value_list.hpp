// Reads the lists of values in the features of a tf.train.Example.
//
// A list is an Int64List, a FloatList or a BytesList in wire format.  Field 1
// is repeated.  One list may have both packed and unpacked numbers.
//
// Thread safety: functions only access their arguments.
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

// The type to which the numbers of a list are converted.
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

// Returns the kind of the lists from which such numbers are read.
[[nodiscard]] ListKind list_of(Number number) noexcept;

// Returns the number of values in a list, or nullopt if the list is damaged.
// Reading may find damage that counting does not.
// REQUIRES: kind is not kNone.
[[nodiscard]] std::optional<std::size_t> count_values(
    ListKind kind, std::span<const std::byte> list) noexcept;

// Fills `to`, which is aligned for `number`, with the numbers of a list of the
// kind list_of(number).  Fails if the list has more or fewer numbers than fit,
// or if one is out of range for `number`.
Status read_numbers(Number number, std::span<const std::byte> list,
                    std::span<std::byte> to);

// Appends the values of a BytesList, as views into `list`.
Status read_strings(std::span<const std::byte> list,
                    std::vector<std::span<const std::byte>>& values);

// Skips the field whose tag was read.  Returns false if the field is cut off or
// is a group, which an Example never has.
[[nodiscard]] bool skip_field(ByteCursor& cursor, std::uint32_t tag) noexcept;

}  // namespace gristmill
