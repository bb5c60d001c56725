// Decompression of what chunks of records are compressed with.
//
// decompress() is for data whose decompressed size is known; a StreamDecoder
// hands out data that is too large to be held as a whole.
//
// Thread safety: decompress() may run in any number of threads at once, each
// of which keeps a context for itself.  A StreamDecoder belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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

class StreamDecoder {
 public:
  // Takes the next decompressed bytes; an error ends the decoding.
  using Sink = std::function<Status(std::span<const std::byte>)>;

  // `size` is what the data is expected to become.
  StreamDecoder(Codec codec, std::uint64_t size);
  ~StreamDecoder();
  StreamDecoder(const StreamDecoder&) = delete;
  StreamDecoder& operator=(const StreamDecoder&) = delete;

  // Decompresses the next piece of the data.
  Status feed(std::span<const std::byte> from, const Sink& sink);

  // No more data comes.  Fails unless it became `size` bytes.
  Status finish(const Sink& sink);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill
