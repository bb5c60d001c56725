#include "core/base/stream_copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace gristmill {

#ifdef __SSE2__

void stream_copy(std::byte* to, const std::byte* from,
                 std::size_t size) noexcept {
  constexpr std::size_t kLine = 64;
  const auto copy = [&](std::size_t bytes) {
    if (bytes == 0) return;
    std::memcpy(to, from, bytes);
    to += bytes;
    from += bytes;
    size -= bytes;
  };
  copy(std::min(size, -reinterpret_cast<std::uintptr_t>(to) % kLine));
  for (; size >= kLine; size -= kLine, to += kLine, from += kLine) {
    auto* const line = reinterpret_cast<__m128i*>(to);
    const auto* const source = reinterpret_cast<const __m128i*>(from);
    const __m128i first = _mm_loadu_si128(source);
    const __m128i second = _mm_loadu_si128(source + 1);
    const __m128i third = _mm_loadu_si128(source + 2);
    const __m128i fourth = _mm_loadu_si128(source + 3);
    _mm_stream_si128(line, first);
    _mm_stream_si128(line + 1, second);
    _mm_stream_si128(line + 2, third);
    _mm_stream_si128(line + 3, fourth);
  }
  copy(size);
  _mm_sfence();  // Such stores are not in order with others.
}

#else

void stream_copy(std::byte* to, const std::byte* from,
                 std::size_t size) noexcept {
  if (size > 0) std::memcpy(to, from, size);
}

#endif

}  // namespace gristmill
