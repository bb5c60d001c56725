// The vector operations that resizing needs, on 16 bytes.  They use SSE2, which
// every x86-64 processor has, or else GCC's vector extensions.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gristmill::lanes {

using U8x16 = std::uint8_t __attribute__((vector_size(16)));
using I16x8 = std::int16_t __attribute__((vector_size(16)));
using I32x4 = std::int32_t __attribute__((vector_size(16)));

inline U8x16 load(const std::uint8_t* from) {
  U8x16 bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// Returns the 8 bytes at `from`, then zeros.
inline U8x16 load_half(const std::uint8_t* from) {
  std::uint64_t half;
  std::memcpy(&half, from, sizeof half);
  using Halves = std::uint64_t __attribute__((vector_size(16)));
  return reinterpret_cast<U8x16>(Halves{half, 0});
}

// Returns a pair of weights in each lane.
inline I16x8 spread(const std::int16_t (&pair)[2]) {
  std::int32_t both;
  std::memcpy(&both, pair, sizeof both);
  return reinterpret_cast<I16x8>(I32x4{both, both, both, both});
}

#if defined(__SSE2__)

// Interleaves bytes 0 to 7, or 8 to 15, of two vectors.
inline U8x16 interleave_low(U8x16 a, U8x16 b) {
  return reinterpret_cast<U8x16>(_mm_unpacklo_epi8(
      reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
}
inline U8x16 interleave_high(U8x16 a, U8x16 b) {
  return reinterpret_cast<U8x16>(_mm_unpackhi_epi8(
      reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
}

// Interleaves bytes 0 to 3 with bytes 4 to 7.
inline U8x16 interleave_quarters(U8x16 a) {
  const auto pixels = reinterpret_cast<__m128i>(a);
  return reinterpret_cast<U8x16>(
      _mm_unpacklo_epi8(pixels, _mm_srli_si128(pixels, 4)));
}

// Multiplies the numbers of two vectors, and adds the products in pairs.
inline I32x4 dot(I16x8 a, I16x8 b) {
  return reinterpret_cast<I32x4>(_mm_madd_epi16(reinterpret_cast<__m128i>(a),
                                                reinterpret_cast<__m128i>(b)));
}

// Converts numbers to bytes; values out of range become 0 or 255.
inline U8x16 pack(I32x4 a, I32x4 b, I32x4 c, I32x4 d) {
  return reinterpret_cast<U8x16>(
      _mm_packus_epi16(_mm_packs_epi32(reinterpret_cast<__m128i>(a),
                                       reinterpret_cast<__m128i>(b)),
                       _mm_packs_epi32(reinterpret_cast<__m128i>(c),
                                       reinterpret_cast<__m128i>(d))));
}

#else

inline U8x16 interleave_low(U8x16 a, U8x16 b) {
  U8x16 both;
  for (int i = 0; i < 8; ++i) both[2 * i] = a[i], both[2 * i + 1] = b[i];
  return both;
}
inline U8x16 interleave_high(U8x16 a, U8x16 b) {
  U8x16 both;
  for (int i = 0; i < 8; ++i)
    both[2 * i] = a[i + 8], both[2 * i + 1] = b[i + 8];
  return both;
}

inline U8x16 interleave_quarters(U8x16 a) {
  U8x16 both{};
  for (int i = 0; i < 4; ++i) both[2 * i] = a[i], both[2 * i + 1] = a[i + 4];
  return both;
}

inline I32x4 dot(I16x8 a, I16x8 b) {
  // Shifting the lower number up and down again extends its sign.
  const auto x = reinterpret_cast<I32x4>(a), y = reinterpret_cast<I32x4>(b);
  return ((x << 16) >> 16) * ((y << 16) >> 16) + (x >> 16) * (y >> 16);
}

inline U8x16 pack(I32x4 a, I32x4 b, I32x4 c, I32x4 d) {
  U8x16 bytes;
  const I32x4 all[] = {a, b, c, d};
  for (int i = 0; i < 16; ++i) {
    const std::int32_t number = all[i / 4][i % 4];
    bytes[i] = static_cast<std::uint8_t>(
        number < 0 ? 0 : (number > 255 ? 255 : number));
  }
  return bytes;
}

#endif

// Converts bytes 0 to 7, or 8 to 15, to numbers of 16 bits.
inline I16x8 widen_low(U8x16 a) {
  return reinterpret_cast<I16x8>(interleave_low(a, U8x16{}));
}
inline I16x8 widen_high(U8x16 a) {
  return reinterpret_cast<I16x8>(interleave_high(a, U8x16{}));
}

}  // namespace gristmill::lanes
