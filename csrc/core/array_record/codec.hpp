// Decompression of what chunks of records are compressed with.
//
// Thread safety: any thread may call any function; each thread keeps a context
// for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/base/status.hpp"

namespace gristmill {

// The values are those in files.
enum class Codec : std::uint8_t {
  kNone = 0,
  kBrotli = 'b',
  kZstd = 'z',
  kSnappy = 's',
};

// The codec that a byte of a file names, if there is one.
[[nodiscard]] std::optional<Codec> codec_of(std::uint8_t byte) noexcept;

[[nodiscard]] const char* name_of(Codec codec) noexcept;

// True unless no `from` bytes could ever become `to` bytes: a check of sizes
// that a damaged file claims, before memory is allocated for them.
[[nodiscard]] bool plausible(Codec codec, std::uint64_t from,
                             std::uint64_t to) noexcept;

// Decompresses `from` to `to`.  Fails unless all of `from` is read and all of
// `to` is written.
Status decompress(Codec codec, std::span<const std::byte> from,
                  std::span<std::byte> to);

// Decompresses the beginning of data, of which `from` has the first bytes or
// all.  Returns how many bytes of `to` were written: as many as there are, and
// none of snappy, of which nothing can be had before all is there.
Result<std::size_t> decompress_front(Codec codec,
                                     std::span<const std::byte> from,
                                     std::span<std::byte> to);

}  // namespace gristmill
