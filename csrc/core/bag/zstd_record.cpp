#include "core/bag/zstd_record.hpp"

#include <zstd.h>

#include <array>
#include <memory>

#include "core/array_record/codec.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

struct StreamDeleter {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

// Returns the decompressed size of a frame by decompressing it.
Result<std::uint64_t> decompressed_size(std::span<const std::byte> frame) {
  const std::unique_ptr<ZSTD_DStream, StreamDeleter> stream(
      ZSTD_createDStream());
  if (!stream) return no_memory_for("decompressing zstd");
  std::array<std::byte, 16384> bytes;
  ZSTD_inBuffer from{frame.data(), frame.size(), 0};
  std::uint64_t total = 0;
  for (;;) {
    ZSTD_outBuffer to{bytes.data(), bytes.size(), 0};
    const std::size_t input_hint =
        ZSTD_decompressStream(stream.get(), &to, &from);
    if (ZSTD_isError(input_hint)) {
      return damaged("zstd data are damaged: ", ZSTD_getErrorName(input_hint));
    }
    total += to.pos;
    if (input_hint == 0) return total;
    if (from.pos == from.size && to.pos < to.size) {
      return damaged("zstd data are damaged: they end too early");
    }
  }
}

}  // namespace

Result<std::uint64_t> zstd_record_size(std::span<const std::byte> record) {
  if (record.empty()) return std::uint64_t{0};
  const unsigned long long size =
      ZSTD_getFrameContentSize(record.data(), record.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN) return decompressed_size(record);
  if (size == ZSTD_CONTENTSIZE_ERROR) {
    return damaged("it is not compressed with zstd");
  }
  if (!is_plausible_size(Codec::kZstd, record.size(), size)) {
    return damaged("its ", record.size(), " bytes cannot decompress to ", size,
                   " bytes");
  }
  return std::uint64_t{size};
}

Status read_zstd_record(std::span<const std::byte> record,
                        std::span<std::byte> to) {
  if (record.empty()) return {};
  return decompress(Codec::kZstd, record, to);
}

}  // namespace gristmill
