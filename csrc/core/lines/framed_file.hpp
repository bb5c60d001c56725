// A FramedFile reads a file of gzip members or zstd frames as if it were not
// compressed.
//
// A scan finds groups of frames, which are decompressed as a whole and cached
// for a while.  A group has at least kMinGroupBytes bytes, so that the list of
// groups is short even if frames are small.
//
// Thread safety: const methods may overlap.
//
// Fork: a child may continue to read, see ChunkCache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/array_record/chunk_cache.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/head_reader.hpp"
#include "core/files/packed_chunks.hpp"
#include "core/lines/frame_stream.hpp"

namespace gristmill {

class FramedFile final : public File {
 public:
  // A group of small frames ends when it has this many bytes.
  static constexpr std::uint64_t kMinGroupBytes = std::uint64_t{32} << 10;

  // A read of one byte decompresses all of its frame, which must fit into the
  // cache.  Decompressing this much takes about 0.1 s.
  static constexpr std::uint64_t kMaxFrameBytes = std::uint64_t{64} << 20;

  // Receives consecutive decompressed bytes.
  using Visit = std::function<void(std::uint64_t, std::span<const std::byte>)>;

  // Decompresses a file.  Calls `visit` with the offset and the bytes of each
  // piece, and returns the groups: each begins at an offset in `file`, and its
  // decoded size is that of its decompressed bytes.
  static Result<PackedChunks> scan(const File& file, Compression compression,
                                   ScanProgress& progress, const Visit& visit);

  // Opens a file whose groups are known.
  static Result<Ptr> open(std::shared_ptr<const File> file,
                          Compression compression, const PackedChunks& groups,
                          std::shared_ptr<ChunkCache> cache);

  ~FramedFile() override { cache_->drop(first_id_, groups_.size()); }

  [[nodiscard]] std::uint64_t version() const noexcept override {
    return file_->version();
  }
  Status read(std::uint64_t offset, std::span<std::byte> to) const override;
  [[nodiscard]] std::string describe_change() const override {
    return file_->describe_change();
  }

 private:
  // The offsets of a group in the file and in the decompressed bytes.  The next
  // group begins at its end; the last one in the list is empty.
  struct Group {
    std::uint64_t begin = 0;
    std::uint64_t decoded_begin = 0;
  };

  // Compressed bytes of consecutive groups.
  struct Loaded {
    std::size_t first = 0;
    std::size_t end = 0;
    std::span<const std::byte> bytes;
  };

  FramedFile(std::shared_ptr<const File> file, Compression compression,
             std::vector<Group> groups, std::shared_ptr<ChunkCache> cache);

  [[nodiscard]] std::size_t group_at(std::uint64_t offset) const;
  Result<Loaded> load(std::size_t first, std::size_t last) const;
  Status decode(std::size_t group, std::size_t last, Loaded& loaded,
                DecodedChunk& to) const;

  const std::shared_ptr<const File> file_;
  const Compression compression_;
  const std::vector<Group> groups_;
  const std::shared_ptr<ChunkCache> cache_;
  const std::uint64_t first_id_;  // Cache id of the first group.
};

}  // namespace gristmill
