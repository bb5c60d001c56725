#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/array_record/codec.hpp"
#include "core/check.hpp"

namespace gristmill {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes(std::initializer_list<int> values) {
  Bytes out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

// Twelve times "gristmill ", and an empty string, as each library compresses
// them.
Bytes text() {
  const std::string word = "gristmill ";
  Bytes out;
  for (int i = 0; i < 12; ++i) {
    for (const char c : word) out.push_back(static_cast<std::byte>(c));
  }
  return out;
}

struct Sample {
  Codec codec;
  Bytes packed;
  Bytes nothing;
};

std::vector<Sample> samples() {
  Bytes snappy = bytes({0x78, 9 << 2});
  const Bytes plain = text();
  snappy.insert(snappy.end(), plain.begin(), plain.begin() + 10);
  for (const int length : {64, 46}) {  // Copies of the bytes 10 bytes earlier.
    const Bytes copy = bytes({(length - 1) << 2 | 2, 10, 0});
    snappy.insert(snappy.end(), copy.begin(), copy.end());
  }
  return {
      {Codec::kNone, plain, {}},
      {Codec::kZstd,
       bytes({0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x78, 0x8d, 0x00, 0x00,
              0x50, 0x67, 0x72, 0x69, 0x73, 0x74, 0x6d, 0x69, 0x6c,
              0x6c, 0x20, 0x01, 0x00, 0xab, 0x69, 0x41, 0x02}),
       bytes({0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00})},
      {Codec::kBrotli,
       bytes({0x1b, 0x77, 0x00, 0x00, 0xc4, 0x63, 0x6c, 0x5d, 0xff, 0x49,
              0x71, 0x10, 0x01, 0x86, 0x02, 0x62, 0xb5, 0x47, 0x36, 0x00}),
       bytes({0x06})},
      {Codec::kSnappy, snappy, bytes({0x00})},
  };
}

bool decodes(const Sample& sample, std::span<const std::byte> from,
             std::size_t size) {
  Bytes to(size);
  return decompress(sample.codec, from, to).ok();
}

void test_valid_data_decompress(const Sample& sample) {
  Bytes to(120);
  CHECK(decompress(sample.codec, sample.packed, to).ok());
  CHECK(to == text());
  CHECK(decodes(sample, sample.nothing, 0));
}

void test_wrong_size_or_damage_is_error(const Sample& sample) {
  const std::span<const std::byte> packed(sample.packed);
  CHECK(!decodes(sample, packed, 119));
  CHECK(!decodes(sample, packed, 121));
  CHECK(!decodes(sample, packed, 0));
  CHECK(!decodes(sample, sample.nothing, 1));
  CHECK(!decodes(sample, {}, 1));
  for (std::size_t n = 0; n < packed.size(); ++n) {
    CHECK(!decodes(sample, packed.first(n), 120));
  }
  Bytes longer = sample.packed;
  longer.push_back(std::byte{0});
  CHECK(!decodes(sample, longer, 120));
}

void test_implausible_sizes_are_rejected() {
  CHECK(is_plausible_size(Codec::kNone, 5, 5) &&
        !is_plausible_size(Codec::kNone, 5, 6));
  CHECK(is_plausible_size(Codec::kZstd, 20, 1 << 20));
  CHECK(!is_plausible_size(Codec::kZstd, 20, 1ull << 40));
  CHECK(!is_plausible_size(Codec::kSnappy, 20, 1 << 20));
  CHECK(!is_plausible_size(Codec::kBrotli, 20, 1ull << 40));
}

void test_codec_names() {
  CHECK(codec_of('z') == Codec::kZstd && codec_of(0) == Codec::kNone);
  CHECK(!codec_of('x').has_value());
  CHECK_EQ(std::string(name_of(Codec::kBrotli)), "brotli");
}

}  // namespace
}  // namespace gristmill

int main() {
  for (const auto& sample : gristmill::samples()) {
    gristmill::test_valid_data_decompress(sample);
    gristmill::test_wrong_size_or_damage_is_error(sample);
  }
  gristmill::test_implausible_sizes_are_rejected();
  gristmill::test_codec_names();
}
