#include "core/array_record/codec.hpp"

#include <brotli/decode.h>
#include <snappy.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

namespace gristmill {
namespace {

struct ZstdDeleter {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};
using ZstdContext = std::unique_ptr<ZSTD_DCtx, ZstdDeleter>;

struct BrotliDeleter {
  void operator()(BrotliDecoderState* state) const {
    BrotliDecoderDestroyInstance(state);
  }
};
using BrotliState = std::unique_ptr<BrotliDecoderState, BrotliDeleter>;

Status no_memory(Codec codec) {
  return Status(Code::kNoMemory, "no memory for decompressing ",
                name_of(codec));
}

template <class... Parts>
Status damaged_data(Codec codec, const Parts&... what) {
  return Status(Code::kInvalidArgument, name_of(codec),
                " data are damaged: ", what...);
}

Status wrong_size(Codec codec, std::uint64_t found, std::uint64_t expected) {
  return damaged_data(codec, "they decompress to ", found, " bytes, expected ",
                      expected);
}

Status copy_plain(std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.size() != to.size()) {
    return wrong_size(Codec::kNone, from.size(), to.size());
  }
  if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
  return {};
}

// Returns the context of this thread, or null if there is no memory.
ZSTD_DCtx* zstd_context() {
  thread_local const ZstdContext context(ZSTD_createDCtx());
  return context.get();
}

Status decompress_zstd(std::span<const std::byte> from,
                       std::span<std::byte> to) {
  ZSTD_DCtx* const context = zstd_context();
  if (context == nullptr) return no_memory(Codec::kZstd);
  const std::size_t size = ZSTD_decompressDCtx(context, to.data(), to.size(),
                                               from.data(), from.size());
  if (ZSTD_isError(size)) {
    return damaged_data(Codec::kZstd, ZSTD_getErrorName(size));
  }
  if (size != to.size()) return wrong_size(Codec::kZstd, size, to.size());
  return {};
}

Result<std::size_t> zstd_front(std::span<const std::byte> from,
                               std::span<std::byte> to) {
  ZSTD_DCtx* const context = zstd_context();
  if (context == nullptr) return no_memory(Codec::kZstd);
  ZSTD_DCtx_reset(context, ZSTD_reset_session_only);
  ZSTD_inBuffer in{from.data(), from.size(), 0};
  ZSTD_outBuffer out{to.data(), to.size(), 0};
  std::size_t input_hint = 1;
  while (out.pos < out.size && in.pos < in.size && input_hint > 0) {
    input_hint = ZSTD_decompressStream(context, &out, &in);
    if (ZSTD_isError(input_hint)) {
      return damaged_data(Codec::kZstd, ZSTD_getErrorName(input_hint));
    }
  }
  ZSTD_DCtx_reset(context, ZSTD_reset_session_only);
  return out.pos;
}

// Returns null if there is no memory.
BrotliState brotli_state() {
  BrotliState state(BrotliDecoderCreateInstance(nullptr, nullptr, nullptr));
  // Files may use windows above 16 MiB, which are an extension of brotli.
  if (state) {
    BrotliDecoderSetParameter(state.get(), BROTLI_DECODER_PARAM_LARGE_WINDOW,
                              1);
  }
  return state;
}

Result<std::size_t> brotli_front(std::span<const std::byte> from,
                                 std::span<std::byte> to) {
  const BrotliState state = brotli_state();
  if (!state) return no_memory(Codec::kBrotli);
  std::size_t from_left = from.size();
  const auto* next = reinterpret_cast<const std::uint8_t*>(from.data());
  std::size_t to_left = to.size();
  auto* out = reinterpret_cast<std::uint8_t*>(to.data());
  const auto result = BrotliDecoderDecompressStream(
      state.get(), &from_left, &next, &to_left, &out, nullptr);
  if (result == BROTLI_DECODER_RESULT_ERROR) {
    return damaged_data(
        Codec::kBrotli,
        BrotliDecoderErrorString(BrotliDecoderGetErrorCode(state.get())));
  }
  return to.size() - to_left;
}

Status decompress_brotli(std::span<const std::byte> from,
                         std::span<std::byte> to) {
  const BrotliState state = brotli_state();
  if (!state) return no_memory(Codec::kBrotli);
  std::size_t from_left = from.size();
  const auto* next = reinterpret_cast<const std::uint8_t*>(from.data());
  std::size_t to_left = to.size();
  auto* out = reinterpret_cast<std::uint8_t*>(to.data());
  const auto result = BrotliDecoderDecompressStream(
      state.get(), &from_left, &next, &to_left, &out, nullptr);
  if (result == BROTLI_DECODER_RESULT_ERROR) {
    return damaged_data(
        Codec::kBrotli,
        BrotliDecoderErrorString(BrotliDecoderGetErrorCode(state.get())));
  }
  if (result == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT) {
    return damaged_data(Codec::kBrotli,
                        "they decompress to more than the expected ", to.size(),
                        " bytes");
  }
  if (result != BROTLI_DECODER_RESULT_SUCCESS || from_left > 0) {
    return damaged_data(Codec::kBrotli, "they do not end where expected");
  }
  if (to_left > 0) {
    return wrong_size(Codec::kBrotli, to.size() - to_left, to.size());
  }
  return {};
}

Status decompress_snappy(std::span<const std::byte> from,
                         std::span<std::byte> to) {
  const auto* data = reinterpret_cast<const char*>(from.data());
  std::size_t size = 0;
  if (!snappy::GetUncompressedLength(data, from.size(), &size)) {
    return damaged_data(Codec::kSnappy, "their length is not readable");
  }
  if (size != to.size()) return wrong_size(Codec::kSnappy, size, to.size());
  char empty_output = 0;
  char* const out =
      to.empty() ? &empty_output : reinterpret_cast<char*>(to.data());
  if (!snappy::RawUncompress(data, from.size(), out)) {
    return damaged_data(Codec::kSnappy, "a copy reaches out of bounds");
  }
  return {};
}

}  // namespace

std::optional<Codec> codec_of(std::uint8_t byte) noexcept {
  const auto codec = static_cast<Codec>(byte);
  switch (codec) {
    case Codec::kNone:
    case Codec::kBrotli:
    case Codec::kZstd:
    case Codec::kSnappy:
      return codec;
  }
  return std::nullopt;
}

const char* name_of(Codec codec) noexcept {
  switch (codec) {
    case Codec::kNone:
      return "uncompressed";
    case Codec::kBrotli:
      return "brotli";
    case Codec::kZstd:
      return "zstd";
    case Codec::kSnappy:
      return "snappy";
  }
  return "unknown";
}

// A 4-byte block of zstd decompresses to at most 128 KiB, a brotli block of
// about the same size to 16 MiB, and a 3-byte element of snappy to 64 bytes.
// The limits below are not lower than that.
bool is_plausible_size(Codec codec, std::uint64_t from,
                       std::uint64_t to) noexcept {
  switch (codec) {
    case Codec::kNone:
      return to <= from;
    case Codec::kSnappy:
      return to / 24 <= from;
    case Codec::kZstd:
      return to >> 17 <= from;
    case Codec::kBrotli:
      return to >> 24 <= from;
  }
  return false;
}

Status decompress(Codec codec, std::span<const std::byte> from,
                  std::span<std::byte> to) {
  switch (codec) {
    case Codec::kNone:
      return copy_plain(from, to);
    case Codec::kBrotli:
      return decompress_brotli(from, to);
    case Codec::kZstd:
      return decompress_zstd(from, to);
    case Codec::kSnappy:
      return decompress_snappy(from, to);
  }
  return Status(Code::kInvalidArgument, "unknown compression");
}

Result<std::size_t> decompress_front(Codec codec,
                                     std::span<const std::byte> from,
                                     std::span<std::byte> to) {
  switch (codec) {
    case Codec::kNone:
      std::ranges::copy_n(from.begin(), std::min(from.size(), to.size()),
                          to.begin());
      return std::min(from.size(), to.size());
    case Codec::kBrotli:
      return brotli_front(from, to);
    case Codec::kZstd:
      return zstd_front(from, to);
    case Codec::kSnappy:
      break;
  }
  return std::size_t{0};
}

}  // namespace gristmill
