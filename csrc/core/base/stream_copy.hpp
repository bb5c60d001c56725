// Copies to memory that will not be read soon, and bypasses the caches.
//
// An ordinary copy first reads the cache lines that it writes, and evicts other
// data from the caches.
//
// Thread safety: a plain function.  A thread that synchronizes with the end of
// the copy sees all of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace gristmill {

// Copies `size` bytes.  REQUIRES: the two do not overlap.
inline void stream_copy(std::byte* to, const std::byte* from,
                        std::size_t size) noexcept {
#ifdef __SSE2__
  constexpr std::size_t kLineBytes = 64;
  constexpr std::size_t kPartBytes = sizeof(__m128i);
  const std::size_t unaligned =
      std::min(size, -reinterpret_cast<std::uintptr_t>(to) % kLineBytes);
  if (unaligned > 0) std::memcpy(to, from, unaligned);
  for (to += unaligned, from += unaligned, size -= unaligned;
       size >= kLineBytes;
       to += kLineBytes, from += kLineBytes, size -= kLineBytes) {
    for (std::size_t at = 0; at < kLineBytes; at += kPartBytes) {
      _mm_stream_si128(
          reinterpret_cast<__m128i*>(to + at),
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
    }
  }
  // Order the streaming stores before later stores.
  _mm_sfence();
#endif
  if (size > 0) std::memcpy(to, from, size);
}

}  // namespace gristmill
