#include "core/example/value_list.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

namespace gristmill {
namespace {

static_assert(std::endian::native == std::endian::little);

// Tags of field 1, by wire type.
constexpr std::uint32_t kVarintTag = 1 << 3 | 0;
constexpr std::uint32_t kPackedTag = 1 << 3 | 2;
constexpr std::uint32_t kFixed32Tag = 1 << 3 | 5;

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kHighBits = 0x8080808080808080;

// The bits of a half-precision number, a type that C++20 does not have.
struct Half {
  std::uint16_t bits;
};

enum class Outcome {
  kOk,
  kDamaged,
  kTooMany,
  kOutOfRange,  // A number is out of range for its type.
};

// Joins the low seven bits of each byte.
constexpr std::uint64_t join_sevens(std::uint64_t word) noexcept {
  word = (word & 0x007f007f007f007f) | (word & 0x7f007f007f007f00) >> 1;
  word = (word & 0x00003fff00003fff) | (word & 0x3fff00003fff0000) >> 2;
  return (word & 0x000000000fffffff) | (word & 0x0fffffff00000000) >> 4;
}

template <class T>
bool convert(std::uint64_t varint, T& to) noexcept {
  const auto value = static_cast<std::int64_t>(varint);
  if constexpr (std::is_same_v<T, bool>) {
    to = varint != 0;
    return varint <= 1;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    to = varint;
    return value >= 0;
  } else {
    to = static_cast<T>(value);
    return static_cast<std::int64_t>(to) == value;
  }
}

// Rounds to nearest, ties to even.  Returns false if a finite number becomes
// infinite.
bool convert(float from, Half& to) noexcept {
  const auto all = std::bit_cast<std::uint32_t>(from);
  const std::uint32_t sign = all >> 16 & 0x8000;
  const std::uint32_t bits = all & 0x7fffffff;
  std::uint32_t half = 0;
  if (bits > 0x7f800000) {  // NaN, whose mantissa must not become 0.
    half = 0x7c00 | std::max<std::uint32_t>(bits >> 13 & 0x3ff, 1);
  } else if (bits == 0x7f800000) {
    half = 0x7c00;
  } else if (bits < 0x38800000) {  // Smaller than any normal half.
    const float scaled = std::bit_cast<float>(bits) * 0x1p24F;
    half = static_cast<std::uint32_t>(std::lrint(scaled));
  } else {
    half = (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
    if (half >= 0x7c00) return false;
  }
  to.bits = static_cast<std::uint16_t>(sign | half);
  return true;
}

bool convert(float from, double& to) noexcept {
  to = from;
  return true;
}

// A fixed amount of memory, to which values are written one by one.
template <class T>
class Writer {
 public:
  explicit Writer(std::span<std::byte> to) noexcept
      : next_(reinterpret_cast<T*>(to.data())),
        end_(next_ + to.size() / sizeof(T)) {}

  [[nodiscard]] bool is_full() const noexcept { return next_ == end_; }

 protected:
  T* next_;
  T* const end_;
};

template <class T>
class IntWriter : public Writer<T> {
 public:
  static constexpr std::uint32_t kSingleTag = kVarintTag;
  using Writer<T>::Writer;

  Outcome read_packed(std::span<const std::byte> chunk) noexcept {
    ByteCursor cursor(chunk);
    while (cursor.left() >= kWordBytes &&
           end_ - next_ >= std::ptrdiff_t{kWordBytes}) {
      const auto word = load_le<std::uint64_t>(cursor.rest().data());
      const std::uint64_t stops = ~word & kHighBits;
      const Outcome outcome =
          stops == 0 ? read_single(cursor) : read_word(word, stops, cursor);
      if (outcome != Outcome::kOk) return outcome;
    }
    while (cursor.left() > 0) {
      const Outcome outcome = read_single(cursor);
      if (outcome != Outcome::kOk) return outcome;
    }
    return Outcome::kOk;
  }

  Outcome read_single(ByteCursor& cursor) noexcept {
    std::uint64_t value = 0;
    if (!cursor.varint(value)) return Outcome::kDamaged;
    if (this->is_full()) return Outcome::kTooMany;
    return convert(value, *next_++) ? Outcome::kOk : Outcome::kOutOfRange;
  }

 private:
  // Reads the varints that end in a word.  `stops` has the high bits of their
  // last bytes.  REQUIRES: at least one varint ends there; there is room for
  // eight values.
  Outcome read_word(std::uint64_t word, std::uint64_t stops,
                    ByteCursor& cursor) noexcept {
    std::span<const std::byte> used;
    bool fits = true;
    if (stops == kHighBits) {
      for (unsigned i = 0; i < kWordBytes; ++i) {
        fits &= convert(word >> 8 * i & 0x7f, next_[i]);
      }
      next_ += kWordBytes;
      static_cast<void>(cursor.take(kWordBytes, used));
      return fits ? Outcome::kOk : Outcome::kOutOfRange;
    }
    unsigned begin = 0;  // The first bit of the next varint.
    do {
      const auto end = static_cast<unsigned>(std::countr_zero(stops)) + 1;
      const std::uint64_t bytes = word << (64 - end) >> (64 - end + begin);
      fits &= convert(join_sevens(bytes), *next_++);
      begin = end;
      stops &= stops - 1;
    } while (stops != 0);
    static_cast<void>(cursor.take(begin / 8, used));
    return fits ? Outcome::kOk : Outcome::kOutOfRange;
  }

  using Writer<T>::next_;
  using Writer<T>::end_;
};

template <class T>
class FloatWriter : public Writer<T> {
 public:
  static constexpr std::uint32_t kSingleTag = kFixed32Tag;
  using Writer<T>::Writer;

  Outcome read_packed(std::span<const std::byte> chunk) noexcept {
    const std::size_t count = chunk.size() / sizeof(float);
    if (chunk.size() % sizeof(float) != 0) return Outcome::kDamaged;
    if (count > static_cast<std::size_t>(end_ - next_)) {
      return Outcome::kTooMany;
    }
    if constexpr (std::is_same_v<T, float>) {
      if (count > 0) std::memcpy(next_, chunk.data(), chunk.size());
      next_ += count;
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        const auto value = load_le<float>(chunk.data() + i * sizeof(float));
        if (!convert(value, *next_++)) return Outcome::kOutOfRange;
      }
    }
    return Outcome::kOk;
  }

  Outcome read_single(ByteCursor& cursor) noexcept {
    std::span<const std::byte> bytes;
    return cursor.take(sizeof(float), bytes) ? read_packed(bytes)
                                             : Outcome::kDamaged;
  }

 private:
  using Writer<T>::next_;
  using Writer<T>::end_;
};

// Calls `read_packed` with the bytes of each length-delimited field 1, and
// `read_single` for each field with the tag `single_tag`, unless this is 0.
// Stops if they return another Outcome than kOk.
template <class Packed, class Single>
Outcome each_field(std::span<const std::byte> list, std::uint32_t single_tag,
                   Packed&& read_packed, Single&& read_single) {
  ByteCursor cursor(list);
  while (cursor.left() > 0) {
    std::uint32_t tag = 0;
    if (!cursor.varint32(tag)) return Outcome::kDamaged;
    Outcome outcome = Outcome::kOk;
    if (tag == kPackedTag) {
      std::uint64_t size = 0;
      std::span<const std::byte> chunk;
      if (!cursor.varint(size) || !cursor.take(size, chunk)) {
        return Outcome::kDamaged;
      }
      outcome = read_packed(chunk);
    } else if (tag != 0 && tag == single_tag) {
      outcome = read_single(cursor);
    } else if (!skip_field(cursor, tag)) {
      outcome = Outcome::kDamaged;
    }
    if (outcome != Outcome::kOk) return outcome;
  }
  return Outcome::kOk;
}

Status damaged_list(ListKind kind) {
  return Status(Code::kInvalidArgument, "its ", name_of(kind),
                " list is damaged");
}

template <template <class> class ValueWriter, class T>
Status read_as(Number number, std::span<const std::byte> list,
               std::span<std::byte> to) {
  ValueWriter<T> writer(to);
  const Outcome outcome = each_field(
      list, writer.kSingleTag,
      [&](auto chunk) { return writer.read_packed(chunk); },
      [&](auto& cursor) { return writer.read_single(cursor); });
  if (outcome == Outcome::kOk && writer.is_full()) return {};
  const ListKind kind = list_of(number);
  if (outcome == Outcome::kOutOfRange) {
    return Status(Code::kInvalidArgument, "a value is out of range for ",
                  name_of(number));
  }
  const auto count = count_values(kind, list);
  if (outcome == Outcome::kDamaged || !count) return damaged_list(kind);
  return Status(Code::kInvalidArgument, "it has ", *count, " values, expected ",
                to.size() / sizeof(T));
}

}  // namespace

std::string_view name_of(ListKind kind) noexcept {
  constexpr std::array<std::string_view, 4> names{"no", "bytes", "float",
                                                  "int64"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view name_of(Number number) noexcept {
  constexpr std::array<std::string_view, 12> names{
      "bool",   "int8",   "int16",  "int32",   "int64",   "uint8",
      "uint16", "uint32", "uint64", "float16", "float32", "float64"};
  return names[static_cast<std::size_t>(number)];
}

std::size_t bytes_of(Number number) noexcept {
  constexpr std::array<std::size_t, 12> sizes{1, 1, 2, 4, 8, 1,
                                              2, 4, 8, 2, 4, 8};
  return sizes[static_cast<std::size_t>(number)];
}

ListKind list_of(Number number) noexcept {
  return number >= Number::kFloat16 ? ListKind::kFloat : ListKind::kInt64;
}

std::optional<std::size_t> count_values(
    ListKind kind, std::span<const std::byte> list) noexcept {
  std::size_t count = 0;
  const auto read_packed = [&](std::span<const std::byte> chunk) {
    if (kind == ListKind::kBytes) {
      ++count;
    } else if (kind == ListKind::kFloat) {
      if (chunk.size() % sizeof(float) != 0) return Outcome::kDamaged;
      count += chunk.size() / sizeof(float);
    } else {
      count += static_cast<std::size_t>(std::ranges::count_if(
          chunk, [](std::byte byte) { return byte < std::byte{0x80}; }));
    }
    return Outcome::kOk;
  };
  const std::uint32_t tag = kind == ListKind::kFloat   ? kFixed32Tag
                            : kind == ListKind::kInt64 ? kVarintTag
                                                       : 0;
  const auto read_single = [&](ByteCursor& cursor) {
    ++count;
    return skip_field(cursor, tag) ? Outcome::kOk : Outcome::kDamaged;
  };
  if (each_field(list, tag, read_packed, read_single) != Outcome::kOk) {
    return std::nullopt;
  }
  return count;
}

Status read_numbers(Number number, std::span<const std::byte> list,
                    std::span<std::byte> to) {
  constexpr std::array readers{
      read_as<IntWriter, bool>,          read_as<IntWriter, std::int8_t>,
      read_as<IntWriter, std::int16_t>,  read_as<IntWriter, std::int32_t>,
      read_as<IntWriter, std::int64_t>,  read_as<IntWriter, std::uint8_t>,
      read_as<IntWriter, std::uint16_t>, read_as<IntWriter, std::uint32_t>,
      read_as<IntWriter, std::uint64_t>, read_as<FloatWriter, Half>,
      read_as<FloatWriter, float>,       read_as<FloatWriter, double>};
  return readers[static_cast<std::size_t>(number)](number, list, to);
}

Status read_strings(std::span<const std::byte> list,
                    std::vector<std::span<const std::byte>>& values) {
  const Outcome outcome = each_field(
      list, 0,
      [&](std::span<const std::byte> value) {
        values.push_back(value);
        return Outcome::kOk;
      },
      [](ByteCursor&) { return Outcome::kOk; });
  if (outcome == Outcome::kOk) return {};
  return damaged_list(ListKind::kBytes);
}

bool skip_field(ByteCursor& cursor, std::uint32_t tag) noexcept {
  std::uint64_t value = 0;
  std::span<const std::byte> bytes;
  if (tag >> 3 == 0) return false;
  switch (tag & 7) {
    case 0:
      return cursor.varint(value);
    case 1:
      return cursor.take(8, bytes);
    case 2:
      return cursor.varint(value) && cursor.take(value, bytes);
    case 5:
      return cursor.take(4, bytes);
    default:
      return false;
  }
}

}  // namespace gristmill
