#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/highway_hash.hpp"
#include "core/check.hpp"

namespace gristmill {
namespace {

using Speed = HighwayHash::Speed;

// The bytes 0 to 31, like the key of the published hashes.
constexpr HighwayHash::Key kKey = {0x0706050403020100, 0x0f0e0d0c0b0a0908,
                                   0x1716151413121110, 0x1f1e1d1c1b1a1918};

// The published hashes of the bytes 0, 1, ..., n - 1.
struct Vector {
  std::size_t n;
  std::uint64_t hash;
};
constexpr std::array kVectors = {
    Vector{0, 0x907a56de22c26e53},  Vector{1, 0x7eab43aac7cddd78},
    Vector{2, 0xb8d0569ab0b53d62},  Vector{3, 0x5c6befab8a463d80},
    Vector{4, 0xf205a46893007eda},  Vector{7, 0x4d02ae1738f59482},
    Vector{15, 0x40793f86a449f33b}, Vector{16, 0xcfab3489f97eb832},
    Vector{17, 0x19fe67d2c8c5c0e2}, Vector{31, 0x9fc7007ccf035a68},
    Vector{32, 0xa0c964d9ecd580fc}, Vector{33, 0x2c90f73ca03181fc},
    Vector{63, 0xab8eebe9bf2139a0}, Vector{64, 0x75542c5d4cd2a6ff},
};

std::vector<std::byte> counted(std::size_t n) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

std::uint64_t hash_of(std::span<const std::byte> bytes, Speed speed) {
  HighwayHash hash(kKey, speed);
  hash.append(bytes);
  return hash.value();
}

void test_hashes_equal_published_ones(Speed speed) {
  for (const Vector& vector : kVectors) {
    CHECK_EQ(hash_of(counted(vector.n), speed), vector.hash);
  }
}

void test_pieces_equal_whole(Speed speed) {
  const auto bytes = counted(300);
  for (std::size_t n = 0; n <= bytes.size(); n += 7) {
    const auto whole = std::span(bytes).first(n);
    for (std::size_t step = 1; step < 70; ++step) {
      HighwayHash hash(kKey, speed);
      for (std::size_t at = 0; at < n; at += step) {
        hash.append(whole.subspan(at, std::min(step, n - at)));
      }
      CHECK_EQ(hash.value(), hash_of(whole, Speed::kPortable));
    }
  }
}

void test_two_at_once_equal_single(Speed speed) {
  const auto bytes = counted(200);
  const auto all = std::span(bytes);
  for (std::size_t n = 0; n <= 100; n += 3) {
    for (std::size_t m = 0; m <= 100; m += 7) {
      for (std::size_t begun = 0; begun < 40; begun += 13) {
        HighwayHash left(kKey, speed);
        HighwayHash right(kKey, speed);
        left.append(all.first(begun));
        HighwayHash::append_both(left, all.subspan(begun, n), right,
                                 all.subspan(50, m));
        CHECK_EQ(left.value(), hash_of(all.first(begun + n), speed));
        CHECK_EQ(right.value(), hash_of(all.subspan(50, m), speed));
      }
    }
  }
}

void test_value_of_prefix_can_be_read() {
  const auto bytes = counted(100);
  HighwayHash hash(kKey);
  hash.append(std::span(bytes).first(33));
  CHECK_EQ(hash.value(), 0x2c90f73ca03181fcu);
  hash.append(std::span(bytes).subspan(33, 31));
  CHECK_EQ(hash.value(), 0x75542c5d4cd2a6ffu);
}

}  // namespace
}  // namespace gristmill

int main() {
  for (const auto speed : {gristmill::HighwayHash::Speed::kFastest,
                           gristmill::HighwayHash::Speed::kPortable}) {
    gristmill::test_hashes_equal_published_ones(speed);
    gristmill::test_pieces_equal_whole(speed);
    gristmill::test_two_at_once_equal_single(speed);
  }
  gristmill::test_value_of_prefix_can_be_read();
}
