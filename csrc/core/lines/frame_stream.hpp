// A FrameStream decompresses a file of gzip members or zstd frames piece by
// piece, and finds where each frame ends.  A member is called a frame, too.
//
// Thread safety: a stream belongs to one thread; any thread may call the
// functions.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "core/base/status.hpp"
#include "core/files/file.hpp"

namespace gristmill {

enum class Compression { kGzip, kZstd };

[[nodiscard]] const char* name_of(Compression compression) noexcept;

// Returns the compression of a file, or nothing if it is not compressed.  Fails
// if the file has another compression.
Result<std::optional<Compression>> compression_of(const File& file);

class FrameStream {
 public:
  struct Step {
    std::size_t num_read = 0;
    std::size_t num_written = 0;
    bool is_frame_end = false;  // A frame ends after the bytes that were read.
  };

  // Returns a stream at the beginning of a frame.
  static Result<std::unique_ptr<FrameStream>> create(Compression compression);

  FrameStream() = default;
  FrameStream(const FrameStream&) = delete;
  FrameStream& operator=(const FrameStream&) = delete;
  virtual ~FrameStream() = default;

  // Decompresses bytes of `from` to `to`, up to the end of a frame, of `from`
  // or of `to`.
  virtual Result<Step> step(std::span<const std::byte> from,
                            std::span<std::byte> to) = 0;
};

// Decompresses whole frames.  Fails unless `from` ends with a frame and all of
// `to` is written.
Status decompress_frames(Compression compression,
                         std::span<const std::byte> from,
                         std::span<std::byte> to);

}  // namespace gristmill
