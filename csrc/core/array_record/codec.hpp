// Decompression of the chunks of ArrayRecord files.
//
// Thread safety: any thread may call any function.  Each thread keeps its own
// decompression context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/base/status.hpp"

namespace gristmill {

// The values are those used in files.
enum class Codec : std::uint8_t {
  kNone = 0,
  kBrotli = 'b',
  kZstd = 'z',
  kSnappy = 's',
};

// Returns the codec for a byte of a file, or nothing if the byte is unknown.
[[nodiscard]] std::optional<Codec> codec_of(std::uint8_t byte) noexcept;

[[nodiscard]] const char* name_of(Codec codec) noexcept;

// Returns false if `from` bytes can never decompress to `to` bytes.  This
// checks the sizes in a damaged file before memory is allocated for them.
[[nodiscard]] bool is_plausible_size(Codec codec, std::uint64_t from,
                                     std::uint64_t to) noexcept;

// Decompresses `from` to `to`.  Fails unless all of `from` is read and all of
// `to` is written.
Status decompress(Codec codec, std::span<const std::byte> from,
                  std::span<std::byte> to);

// Decompresses the beginning of the data.  `from` is a prefix of the compressed
// data or all of it.  Returns the number of bytes written to `to`.  Returns 0
// for snappy, which cannot be decompressed incrementally.
Result<std::size_t> decompress_front(Codec codec,
                                     std::span<const std::byte> from,
                                     std::span<std::byte> to);

}  // namespace gristmill
