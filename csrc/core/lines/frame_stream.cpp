#include "core/lines/frame_stream.hpp"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "core/array_record/codec.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

constexpr std::string_view kGzip = "\x1f\x8b";
constexpr std::string_view kZstd = "\x28\xb5\x2f\xfd";
// The end of the magic number of a zstd frame that decoders skip; its first
// byte is from 0x50 to 0x5f.
constexpr std::string_view kSkippable = "\x2a\x4d\x18";
constexpr std::size_t kMagicBytes = 10;

// Other formats and the bytes at the beginning of their files.
constexpr std::pair<const char*, std::string_view> kOthers[] = {
    {"bzip2", "BZh91AY&SY"},
    {"xz", std::string_view("\xfd\x37zXZ\0", 6)},
    {"lz4", "\x04\x22\x4d\x18"},
    {"zip", "PK\x03\x04"},
};

// The window bits of zlib's largest window, in a file with a gzip header.
constexpr int kGzipWindow = 15 + 16;

class GzipStream final : public FrameStream {
 public:
  GzipStream() = default;
  ~GzipStream() override { inflateEnd(&stream_); }

  Status start() {
    if (inflateInit2(&stream_, kGzipWindow) == Z_OK) return {};
    return no_memory_for("decompressing gzip");
  }

  Result<Step> step(std::span<const std::byte> from,
                    std::span<std::byte> to) override {
    if (at_begin_) {
      // Members may be padded with zeros.
      const auto zeros = std::ranges::find_if(
          from, [](std::byte byte) { return byte != std::byte{0}; });
      if (zeros != from.begin()) {
        return Step{static_cast<std::size_t>(zeros - from.begin()), 0, true};
      }
      inflateReset(&stream_);
    }
    Bytef empty = 0;  // zlib does not accept null.
    stream_.next_in = const_cast<Bytef*>(
        from.empty() ? &empty : reinterpret_cast<const Bytef*>(from.data()));
    stream_.next_out =
        to.empty() ? &empty : reinterpret_cast<Bytef*>(to.data());
    const uInt in = limited(from.size());
    const uInt out = limited(to.size());
    stream_.avail_in = in;
    stream_.avail_out = out;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    if (code == Z_MEM_ERROR) return no_memory_for("decompressing gzip");
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      return damaged("gzip data are damaged: ",
                     stream_.msg == nullptr ? "unknown format" : stream_.msg);
    }
    const Step step{in - stream_.avail_in, out - stream_.avail_out,
                    code == Z_STREAM_END};
    at_begin_ = step.is_frame_end || (at_begin_ && step.num_read == 0);
    return step;
  }

 private:
  static uInt limited(std::size_t size) {
    return static_cast<uInt>(
        std::min<std::size_t>(size, std::numeric_limits<uInt>::max()));
  }

  z_stream stream_{};
  bool at_begin_ = true;  // The next byte is the first one of a frame.
};

class ZstdStream final : public FrameStream {
 public:
  ZstdStream() : context_(ZSTD_createDCtx()) {}
  ~ZstdStream() override { ZSTD_freeDCtx(context_); }

  Status start() {
    if (context_ == nullptr) return no_memory_for("decompressing zstd");
    ZSTD_DCtx_setParameter(
        context_, ZSTD_d_windowLogMax,
        ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
    return {};
  }

  Result<Step> step(std::span<const std::byte> from,
                    std::span<std::byte> to) override {
    ZSTD_inBuffer in{from.data(), from.size(), 0};
    ZSTD_outBuffer out{to.data(), to.size(), 0};
    const std::size_t hint = ZSTD_decompressStream(context_, &out, &in);
    if (ZSTD_isError(hint)) {
      return damaged("zstd data are damaged: ", ZSTD_getErrorName(hint));
    }
    return Step{in.pos, out.pos, hint == 0};
  }

 private:
  ZSTD_DCtx* const context_;
};

template <class Stream>
Result<std::unique_ptr<FrameStream>> start() {
  auto stream = std::make_unique<Stream>();
  TRY(stream->start());
  return std::unique_ptr<FrameStream>(std::move(stream));
}

}  // namespace

const char* name_of(Compression compression) noexcept {
  return compression == Compression::kGzip ? "gzip" : "zstd";
}

Result<std::optional<Compression>> compression_of(const File& file) {
  std::string bytes(std::min<std::uint64_t>(file.size(), kMagicBytes), '\0');
  TRY(file.read(0, std::as_writable_bytes(std::span(bytes))));
  const std::string_view magic = bytes;
  if (magic.starts_with(kGzip)) return std::optional(Compression::kGzip);
  const bool skippable = magic.size() > 3 && (magic[0] & 0xf0) == 0x50 &&
                         magic.substr(1).starts_with(kSkippable);
  if (skippable || magic.starts_with(kZstd)) {
    return std::optional(Compression::kZstd);
  }
  for (const auto& [name, begin] : kOthers) {
    if (!magic.starts_with(begin)) continue;
    return damaged(
        "the file is compressed with ", name,
        ", expected text, gzip or zstd: decompress it, or convert it "
        "to an ArrayRecord file by `gristmill convert`");
  }
  return std::optional<Compression>();
}

Result<std::unique_ptr<FrameStream>> FrameStream::create(
    Compression compression) {
  return compression == Compression::kGzip ? start<GzipStream>()
                                           : start<ZstdStream>();
}

Status decompress_frames(Compression compression,
                         std::span<const std::byte> from,
                         std::span<std::byte> to) {
  if (compression == Compression::kZstd) {
    return decompress(Codec::kZstd, from, to);
  }
  const auto stream = TRY(FrameStream::create(compression));
  bool complete = true;
  while (!from.empty()) {
    const auto step = TRY(stream->step(from, to));
    if (step.num_read + step.num_written == 0) {
      return damaged("gzip data are damaged: more than the expected bytes");
    }
    from = from.subspan(step.num_read);
    to = to.subspan(step.num_written);
    complete = step.is_frame_end;
  }
  if (complete && to.empty()) return {};
  return damaged("gzip data are damaged: they end too early");
}

}  // namespace gristmill
