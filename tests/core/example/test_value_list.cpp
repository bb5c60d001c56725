#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/example/value_list.hpp"

namespace gristmill {
namespace {

using Bytes = std::vector<std::byte>;

void add_varint(Bytes& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    to.push_back(static_cast<std::byte>(value | 0x80));
  }
  to.push_back(static_cast<std::byte>(value));
}

// Returns a list with one packed run of `content`.
Bytes packed(const Bytes& content) {
  Bytes list{std::byte{0x0a}};
  add_varint(list, content.size());
  list.insert(list.end(), content.begin(), content.end());
  return list;
}

Bytes packed_ints(const std::vector<std::int64_t>& values) {
  Bytes content;
  for (const auto value : values) {
    add_varint(content, static_cast<std::uint64_t>(value));
  }
  return packed(content);
}

template <class T>
Bytes raw(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

template <class T>
std::vector<T> read(Number number, const Bytes& list, std::size_t count) {
  std::vector<T> out(count);
  CHECK(
      read_numbers(number, list, std::as_writable_bytes(std::span(out))).ok());
  return out;
}

std::string error(Number number, const Bytes& list, std::size_t count) {
  std::vector<std::byte> out(count * bytes_of(number));
  const Status status = read_numbers(number, list, out);
  CHECK(!status.ok());
  return status.message();
}

// Varints of all lengths at all offsets in the words that the reader loads.
void test_integers_of_any_length_are_read() {
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::int64_t> values(random() % 40);
    for (auto& value : values) {
      value = static_cast<std::int64_t>(random() >> random() % 64);
    }
    const Bytes list = packed_ints(values);
    CHECK(count_values(ListKind::kInt64, list) == values.size());
    CHECK(read<std::int64_t>(Number::kInt64, list, values.size()) == values);
    // Any missing byte is detected.
    for (std::size_t size = 1; size < list.size(); ++size) {
      std::vector<std::int64_t> out(values.size());
      const auto part = std::span(list).first(size);
      CHECK(!read_numbers(Number::kInt64, part,
                          std::as_writable_bytes(std::span(out)))
                 .ok());
    }
  }
}

void test_split_list_equals_whole() {
  Bytes list = packed_ints({1, 300});
  for (const int byte : {0x08, 0x05}) list.push_back(std::byte(byte));
  for (const int byte : {0x4a, 0x01, 0x00}) list.push_back(std::byte(byte));
  const Bytes more = packed_ints({-1});
  list.insert(list.end(), more.begin(), more.end());
  CHECK(count_values(ListKind::kInt64, list) == 4U);
  CHECK(read<std::int32_t>(Number::kInt32, list, 4) ==
        std::vector<std::int32_t>({1, 300, 5, -1}));
}

void test_wrong_count_or_range_is_error() {
  const Bytes three = packed_ints({1, 2, 300});
  CHECK_EQ(error(Number::kInt64, three, 2), "it has 3 values, expected 2");
  CHECK_EQ(error(Number::kInt64, three, 4), "it has 3 values, expected 4");
  CHECK_EQ(error(Number::kUint8, three, 3),
           "a value is out of range for uint8");
  CHECK_EQ(error(Number::kBool, packed_ints({2}), 1),
           "a value is out of range for bool");
  CHECK_EQ(error(Number::kUint64, packed_ints({-1}), 1),
           "a value is out of range for uint64");
  CHECK_EQ(error(Number::kFloat32, packed(Bytes(5)), 1),
           "its float list is damaged");
  Bytes endless = packed(Bytes(11, std::byte{0xff}));
  CHECK_EQ(error(Number::kInt64, endless, 1), "its int64 list is damaged");
}

void test_floats_convert_to_other_types() {
  const std::vector<float> values{
      0.0F,       -1.5F,           65504.0F,          0x1p-24F, 0x1p-25F,
      0x1.8p-25F, 1.0F + 0x1p-11F, 1.0F + 0x1.8p-10F, INFINITY};
  const std::vector<std::uint16_t> halves{
      0x0000, 0xbe00, 0x7bff, 0x0001, 0x0000, 0x0001, 0x3c00, 0x3c02, 0x7c00};
  const Bytes list = packed(raw(values));
  CHECK(count_values(ListKind::kFloat, list) == values.size());
  CHECK(read<float>(Number::kFloat32, list, values.size()) == values);
  CHECK(read<std::uint16_t>(Number::kFloat16, list, values.size()) == halves);
  CHECK(read<double>(Number::kFloat64, list, values.size())[1] == -1.5);
  CHECK_EQ(error(Number::kFloat16, packed(raw<float>({65520.0F})), 1),
           "a value is out of range for float16");
  const float nothing = std::numeric_limits<float>::quiet_NaN();
  const auto half = read<std::uint16_t>(Number::kFloat16,
                                        packed(raw<float>({nothing})), 1)[0];
  CHECK((half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0);
}

void test_group_is_error() {
  const Bytes group{std::byte{0x4b}, std::byte{0x4c}};
  std::vector<std::span<const std::byte>> values;
  CHECK(!read_strings(group, values).ok());
  CHECK(!count_values(ListKind::kBytes, group).has_value());
}

}  // namespace
}  // namespace gristmill

int main() {
  gristmill::test_integers_of_any_length_are_read();
  gristmill::test_split_list_equals_whole();
  gristmill::test_wrong_count_or_range_is_error();
  gristmill::test_floats_convert_to_other_types();
  gristmill::test_group_is_error();
}
