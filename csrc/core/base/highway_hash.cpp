#include "core/base/highway_hash.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gristmill {
namespace {

using State = HighwayHash::State;
using Lanes = std::array<std::uint64_t, 4>;

static_assert(std::endian::native == std::endian::little);

constexpr Lanes kInit0 = {0xdbe6d5d5fe4cce2f, 0xa4093822299f31d0,
                          0x13198a2e03707344, 0x243f6a8885a308d3};
constexpr Lanes kInit1 = {0x3bd39e10cb0ef593, 0xc0acf169b5f18a8c,
                          0xbe5466cf34e90c6c, 0x452821e638d01377};

constexpr int kFinalRounds = 4;

// For each byte of two zipped lanes, the byte of the pair that it comes from.
constexpr std::array<std::uint8_t, 16> kZip = {3,  12, 2,  5,  14, 1, 15, 0,
                                               11, 4,  10, 13, 9,  6, 8,  7};

// Adds the zipped bytes of the lanes (low, high) to (to_low, to_high).  This is
// kZip expressed as masks and shifts; bytes with the same distance move
// together.
void add_zipped(std::uint64_t low, std::uint64_t high, std::uint64_t& to_low,
                std::uint64_t& to_high) noexcept {
  constexpr auto byte = [](std::uint64_t lane, int index) {
    return lane & (std::uint64_t{0xff} << (8 * index));
  };
  to_low += (byte(low, 3) | byte(high, 4)) >> 24 |
            (byte(low, 5) | byte(high, 6)) >> 16 | byte(low, 2) |
            byte(low, 1) << 32 | byte(high, 7) >> 8 | low << 56;
  to_high += (byte(high, 3) | byte(low, 4)) >> 24 | byte(high, 2) |
             byte(high, 5) >> 16 | byte(high, 1) << 24 | byte(low, 6) >> 8 |
             byte(high, 0) << 48 | byte(low, 7);
}

void update_lanes(State& s, const Lanes& packet) noexcept {
  for (std::size_t i = 0; i < 4; ++i) {
    s.v1[i] += s.mul0[i] + packet[i];
    s.mul0[i] ^= (s.v1[i] & 0xffffffff) * (s.v0[i] >> 32);
    s.v0[i] += s.mul1[i];
    s.mul1[i] ^= (s.v0[i] & 0xffffffff) * (s.v1[i] >> 32);
  }
  for (std::size_t i = 0; i < 4; i += 2) {
    add_zipped(s.v1[i], s.v1[i + 1], s.v0[i], s.v0[i + 1]);
  }
  for (std::size_t i = 0; i < 4; i += 2) {
    add_zipped(s.v0[i], s.v0[i + 1], s.v1[i], s.v1[i + 1]);
  }
}

void update_portable(State& state, const std::byte* packets,
                     std::size_t count) noexcept {
  Lanes packet;
  for (; count > 0; --count, packets += sizeof packet) {
    std::memcpy(packet.data(), packets, sizeof packet);
    update_lanes(state, packet);
  }
}

void update_both_portable(State& left, const std::byte* to_left, State& right,
                          const std::byte* to_right,
                          std::size_t count) noexcept {
  update_portable(left, to_left, count);
  update_portable(right, to_right, count);
}

// Swaps the halves of a lane.
std::uint64_t swapped(std::uint64_t lane) noexcept {
  return std::rotl(lane, 32);
}

// Mixes the state after the last packet.
void finish_portable(State& state) noexcept {
  for (int round = 0; round < kFinalRounds; ++round) {
    const Lanes& v0 = state.v0;
    update_lanes(state, {swapped(v0[2]), swapped(v0[3]), swapped(v0[0]),
                         swapped(v0[1])});
  }
}

#if defined(__x86_64__)

#define GRISTMILL_AVX2 __attribute__((target("avx2")))

GRISTMILL_AVX2 inline __m256i load(const void* from) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

GRISTMILL_AVX2 inline void store(Lanes& to, __m256i from) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.data()), from);
}

// The state in registers.
struct Wide {
  __m256i v0, v1, mul0, mul1;
};

GRISTMILL_AVX2 inline Wide load(const State& s) noexcept {
  return {load(s.v0.data()), load(s.v1.data()), load(s.mul0.data()),
          load(s.mul1.data())};
}

GRISTMILL_AVX2 inline void store(State& to, const Wide& from) noexcept {
  store(to.v0, from.v0);
  store(to.v1, from.v1);
  store(to.mul0, from.mul0);
  store(to.mul1, from.mul1);
}

GRISTMILL_AVX2 inline void update(Wide& s, __m256i packet) noexcept {
  const __m256i zip = _mm256_broadcastsi128_si256(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(kZip.data())));
  s.v1 = _mm256_add_epi64(s.v1, _mm256_add_epi64(s.mul0, packet));
  s.mul0 = _mm256_xor_si256(
      s.mul0, _mm256_mul_epu32(s.v1, _mm256_srli_epi64(s.v0, 32)));
  s.v0 = _mm256_add_epi64(s.v0, s.mul1);
  s.mul1 = _mm256_xor_si256(
      s.mul1, _mm256_mul_epu32(s.v0, _mm256_srli_epi64(s.v1, 32)));
  s.v0 = _mm256_add_epi64(s.v0, _mm256_shuffle_epi8(s.v1, zip));
  s.v1 = _mm256_add_epi64(s.v1, _mm256_shuffle_epi8(s.v0, zip));
}

GRISTMILL_AVX2 void update_avx2(State& state, const std::byte* packets,
                                std::size_t count) noexcept {
  Wide wide = load(state);
  for (; count > 0; --count, packets += HighwayHash::kPacketBytes) {
    update(wide, load(packets));
  }
  store(state, wide);
}

GRISTMILL_AVX2 void update_both_avx2(State& left, const std::byte* to_left,
                                     State& right, const std::byte* to_right,
                                     std::size_t count) noexcept {
  Wide wide_left = load(left);
  Wide wide_right = load(right);
  for (; count > 0; --count) {
    update(wide_left, load(to_left));
    update(wide_right, load(to_right));
    to_left += HighwayHash::kPacketBytes;
    to_right += HighwayHash::kPacketBytes;
  }
  store(left, wide_left);
  store(right, wide_right);
}

GRISTMILL_AVX2 void finish_avx2(State& state) noexcept {
  Wide wide = load(state);
  for (int round = 0; round < kFinalRounds; ++round) {
    // As in finish_portable(): lanes 2, 3, 0, 1, each with its halves swapped.
    const __m256i crossed = _mm256_permute4x64_epi64(wide.v0, 0x4e);
    update(wide, _mm256_shuffle_epi32(crossed, 0xb1));
  }
  store(state, wide);
}

bool has_avx2() noexcept {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

#undef GRISTMILL_AVX2

#endif

std::uint64_t rotated_halves(std::uint64_t lane, int count) noexcept {
  const auto low = std::rotl(static_cast<std::uint32_t>(lane), count);
  const auto high = std::rotl(static_cast<std::uint32_t>(lane >> 32), count);
  return std::uint64_t{high} << 32 | low;
}

}  // namespace

HighwayHash::Code HighwayHash::pick_code(Speed speed) noexcept {
#if defined(__x86_64__)
  if (speed == Speed::kFastest && has_avx2()) {
    return {update_avx2, update_both_avx2, finish_avx2};
  }
#else
  static_cast<void>(speed);
#endif
  return {update_portable, update_both_portable, finish_portable};
}

HighwayHash::HighwayHash(const Key& key, Speed speed) noexcept
    : code_(pick_code(speed)) {
  for (std::size_t i = 0; i < 4; ++i) {
    state_.mul0[i] = kInit0[i];
    state_.mul1[i] = kInit1[i];
    state_.v0[i] = kInit0[i] ^ key[i];
    state_.v1[i] = kInit1[i] ^ swapped(key[i]);
  }
}

std::span<const std::byte> HighwayHash::complete(
    std::span<const std::byte> bytes) noexcept {
  if (partial_bytes_ == 0 || bytes.empty()) return bytes;
  const std::size_t added =
      std::min(kPacketBytes - partial_bytes_, bytes.size());
  std::memcpy(partial_.data() + partial_bytes_, bytes.data(), added);
  partial_bytes_ += added;
  if (partial_bytes_ == kPacketBytes) {
    code_.update(state_, partial_.data(), 1);
    partial_bytes_ = 0;
  }
  return bytes.subspan(added);
}

void HighwayHash::append(std::span<const std::byte> bytes) noexcept {
  bytes = complete(bytes);
  if (bytes.empty()) return;
  const std::size_t packets = bytes.size() / kPacketBytes;
  if (packets > 0) code_.update(state_, bytes.data(), packets);
  bytes = bytes.subspan(packets * kPacketBytes);
  if (!bytes.empty()) std::memcpy(partial_.data(), bytes.data(), bytes.size());
  partial_bytes_ = bytes.size();
}

void HighwayHash::append_both(HighwayHash& left,
                              std::span<const std::byte> to_left,
                              HighwayHash& right,
                              std::span<const std::byte> to_right) noexcept {
  to_left = left.complete(to_left);
  to_right = right.complete(to_right);
  const std::size_t packets =
      std::min(to_left.size(), to_right.size()) / kPacketBytes;
  if (packets > 0) {
    left.code_.update_both(left.state_, to_left.data(), right.state_,
                           to_right.data(), packets);
  }
  left.append(to_left.subspan(packets * kPacketBytes));
  right.append(to_right.subspan(packets * kPacketBytes));
}

std::uint64_t HighwayHash::value() const noexcept {
  State state = state_;
  if (partial_bytes_ > 0) {
    // The last packet holds whole words and up to three more bytes.  The form
    // of these bytes depends on whether the upper half contains a word.
    const std::size_t tail_bytes = partial_bytes_ % 4;
    const std::byte* const tail =
        partial_.data() + (partial_bytes_ - tail_bytes);
    std::array<std::byte, kPacketBytes> packet{};
    std::memcpy(packet.data(), partial_.data(), partial_bytes_ - tail_bytes);
    if ((partial_bytes_ & 16) != 0) {
      std::memcpy(packet.data() + 28, tail + tail_bytes - 4, 4);
    } else if (tail_bytes > 0) {
      packet[16] = tail[0];
      packet[17] = tail[tail_bytes >> 1];
      packet[18] = tail[tail_bytes - 1];
    }
    for (std::size_t i = 0; i < 4; ++i) {
      state.v0[i] += (std::uint64_t{partial_bytes_} << 32) + partial_bytes_;
      state.v1[i] =
          rotated_halves(state.v1[i], static_cast<int>(partial_bytes_));
    }
    code_.update(state, packet.data(), 1);
  }
  code_.finish(state);
  return state.v0[0] + state.v1[0] + state.mul0[0] + state.mul1[0];
}

}  // namespace gristmill
