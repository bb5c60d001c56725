#include "core/array_record/codec.hpp"

#include <brotli/decode.h>
#include <snappy.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/byte_buffer.hpp"

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

// Windows of more than 16 MiB are an extension that files may use.
BrotliState new_brotli() {
  BrotliState state(BrotliDecoderCreateInstance(nullptr, nullptr, nullptr));
  if (state) {
    BrotliDecoderSetParameter(state.get(), BROTLI_DECODER_PARAM_LARGE_WINDOW,
                              1);
  }
  return state;
}

Status no_memory(Codec codec) {
  return Status(Code::kNoMemory,
                std::string("no memory for decompressing ") + name_of(codec));
}

Status damaged(Codec codec, const std::string& what) {
  return Status(Code::kInvalidArgument,
                std::string(name_of(codec)) + " data are damaged: " + what);
}

Status wrong_size(Codec codec, std::uint64_t found, std::uint64_t expected) {
  return damaged(codec, "they became " + std::to_string(found) +
                            " bytes, expected " + std::to_string(expected));
}

Status copy_plain(std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.size() != to.size()) {
    return wrong_size(Codec::kNone, from.size(), to.size());
  }
  if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
  return {};
}

Status decompress_zstd(std::span<const std::byte> from,
                       std::span<std::byte> to) {
  thread_local const ZstdContext context(ZSTD_createDCtx());
  if (!context) return no_memory(Codec::kZstd);
  const std::size_t size = ZSTD_decompressDCtx(
      context.get(), to.data(), to.size(), from.data(), from.size());
  if (ZSTD_isError(size)) {
    return damaged(Codec::kZstd, ZSTD_getErrorName(size));
  }
  if (size != to.size()) return wrong_size(Codec::kZstd, size, to.size());
  return {};
}

Status decompress_brotli(std::span<const std::byte> from,
                         std::span<std::byte> to) {
  const BrotliState state = new_brotli();
  if (!state) return no_memory(Codec::kBrotli);
  std::size_t from_left = from.size();
  const auto* next = reinterpret_cast<const std::uint8_t*>(from.data());
  std::size_t to_left = to.size();
  auto* out = reinterpret_cast<std::uint8_t*>(to.data());
  const auto end = BrotliDecoderDecompressStream(state.get(), &from_left, &next,
                                                 &to_left, &out, nullptr);
  if (end == BROTLI_DECODER_RESULT_ERROR) {
    return damaged(Codec::kBrotli, BrotliDecoderErrorString(
                                       BrotliDecoderGetErrorCode(state.get())));
  }
  if (end == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT) {
    return damaged(Codec::kBrotli, "they became more than the expected " +
                                       std::to_string(to.size()) + " bytes");
  }
  if (end != BROTLI_DECODER_RESULT_SUCCESS || from_left > 0) {
    return damaged(Codec::kBrotli, "they do not end where expected");
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
    return damaged(Codec::kSnappy, "their length is not readable");
  }
  if (size != to.size()) return wrong_size(Codec::kSnappy, size, to.size());
  char none = 0;
  char* const out = to.empty() ? &none : reinterpret_cast<char*>(to.data());
  if (!snappy::RawUncompress(data, from.size(), out)) {
    return damaged(Codec::kSnappy, "a copy reaches out of bounds");
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

// Zstd makes at most 128 KiB of a block of 4 bytes, brotli 16 MiB of a block
// of about as many, snappy 64 bytes of an element of 3.
bool plausible(Codec codec, std::uint64_t from, std::uint64_t to) noexcept {
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

struct StreamDecoder::Impl {
  Impl(Codec its_codec, std::uint64_t its_size)
      : codec(its_codec), size(its_size) {
    if (codec == Codec::kZstd) {
      zstd.reset(ZSTD_createDCtx());
      if (zstd) {
        const auto bounds = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax);
        ZSTD_DCtx_setParameter(zstd.get(), ZSTD_d_windowLogMax,
                               bounds.upperBound);
      }
    }
    if (codec == Codec::kBrotli) brotli = new_brotli();
    if (codec == Codec::kZstd) out.resize(ZSTD_DStreamOutSize());
  }

  // Hands `bytes` on, if they are not more than were expected.
  Status give(std::span<const std::byte> bytes, const Sink& sink) {
    if (bytes.size() > size - given) {
      return damaged(codec, "they became more than the expected " +
                                std::to_string(size) + " bytes");
    }
    given += bytes.size();
    return bytes.empty() ? Status() : sink(bytes);
  }

  Status feed_zstd(std::span<const std::byte> from, const Sink& sink) {
    if (!zstd) return no_memory(codec);
    ZSTD_inBuffer in{from.data(), from.size(), 0};
    for (bool full = true; in.pos < in.size || full;) {
      ZSTD_outBuffer made{out.data(), out.size(), 0};
      const auto hint = ZSTD_decompressStream(zstd.get(), &made, &in);
      if (ZSTD_isError(hint)) return damaged(codec, ZSTD_getErrorName(hint));
      ended = hint == 0;
      full = made.pos == made.size && !ended;
      Status status = give(std::span(out).first(made.pos), sink);
      if (!status.ok()) return status;
    }
    return {};
  }

  Status feed_brotli(std::span<const std::byte> from, const Sink& sink) {
    if (!brotli) return no_memory(codec);
    if (ended) return damaged(codec, "more follows their end");
    std::size_t left = from.size();
    const auto* next = reinterpret_cast<const std::uint8_t*>(from.data());
    for (;;) {
      std::size_t none = 0;
      const auto end = BrotliDecoderDecompressStream(brotli.get(), &left, &next,
                                                     &none, nullptr, nullptr);
      if (end == BROTLI_DECODER_RESULT_ERROR) {
        const auto error = BrotliDecoderGetErrorCode(brotli.get());
        return damaged(codec, BrotliDecoderErrorString(error));
      }
      while (BrotliDecoderHasMoreOutput(brotli.get())) {
        std::size_t made = 0;
        const auto* bytes = BrotliDecoderTakeOutput(brotli.get(), &made);
        Status status =
            give({reinterpret_cast<const std::byte*>(bytes), made}, sink);
        if (!status.ok()) return status;
      }
      ended = BrotliDecoderIsFinished(brotli.get()) != 0;
      if (ended && left > 0) return damaged(codec, "more follows their end");
      if (end != BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT) return {};
    }
  }

  const Codec codec;
  const std::uint64_t size;
  std::uint64_t given = 0;
  bool ended = false;  // The compressed form says so itself.
  ZstdContext zstd;
  BrotliState brotli;
  std::vector<std::byte> out;   // Of zstd.
  std::vector<std::byte> held;  // Snappy cannot start before it has all.
};

StreamDecoder::StreamDecoder(Codec codec, std::uint64_t size)
    : impl_(std::make_unique<Impl>(codec, size)) {}

StreamDecoder::~StreamDecoder() = default;

Status StreamDecoder::feed(std::span<const std::byte> from, const Sink& sink) {
  if (from.empty()) return {};
  switch (impl_->codec) {
    case Codec::kNone:
      return impl_->give(from, sink);
    case Codec::kZstd:
      return impl_->feed_zstd(from, sink);
    case Codec::kBrotli:
      return impl_->feed_brotli(from, sink);
    case Codec::kSnappy:
      impl_->held.insert(impl_->held.end(), from.begin(), from.end());
      return {};
  }
  return {};
}

Status StreamDecoder::finish(const Sink& sink) {
  Impl& impl = *impl_;
  if (impl.codec == Codec::kSnappy) {
    if (!plausible(impl.codec, impl.held.size(), impl.size)) {
      return damaged(impl.codec, std::to_string(impl.held.size()) +
                                     " bytes cannot become " +
                                     std::to_string(impl.size));
    }
    ByteBuffer all;
    if (!all.reset(impl.size)) return no_memory(impl.codec);
    Status status = decompress_snappy(impl.held, all.all());
    if (!status.ok()) return status;
    return impl.give(all.all(), sink);
  }
  if (impl.given != impl.size) {
    return wrong_size(impl.codec, impl.given, impl.size);
  }
  if (impl.codec != Codec::kNone && !impl.ended) {
    return damaged(impl.codec, "they end too early");
  }
  return {};
}

}  // namespace gristmill
