#include "core/lines/line_file.hpp"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/files/shared_index.hpp"
#include "core/files/verify.hpp"
#include "core/lines/frame_stream.hpp"
#include "core/lines/framed_file.hpp"
#include "core/lines/line_collector.hpp"
#include "core/lines/line_index.hpp"

namespace gristmill {
namespace {

using IndexPtr = std::unique_ptr<const SpanIndex>;

using FilePtr = std::shared_ptr<const File>;

// A file of text, after decompression, and the index of its lines.
struct IndexedLines {
  FilePtr file;
  IndexPtr index;
};

// Stand for lists of lines and of frames in the files of their indices.  The
// lines of a compressed file have a kind of their own, because its size may be
// the same after decompression.
constexpr std::uint64_t kLineKind = 0x316e696c;         // "lin1"
constexpr std::uint64_t kDecodedLineKind = 0x316e6964;  // "din1"
constexpr std::uint64_t kGzipKind = 0x317a67;           // "gz1"
constexpr std::uint64_t kZstdKind = 0x3174737a;         // "zst1"

// Returns the paths of the index of frames.
std::vector<std::string> frame_paths(std::span<const std::string> index_paths) {
  std::vector<std::string> paths;
  for (const std::string& path : index_paths) paths.push_back(path + "-frames");
  return paths;
}

Result<IndexedLines> open_compressed(const FilePtr& file,
                                     Compression compression,
                                     std::span<const std::string> index_paths,
                                     std::shared_ptr<ChunkCache> cache,
                                     ScanProgress& progress) {
  // A scan for frames finds the lines, too.
  std::optional<PackedChunks> lines;
  const auto scan_frames = [&]() -> Result<PackedChunks> {
    LineCollector collector;
    std::uint64_t decoded = 0;
    const auto visit = [&](std::uint64_t at, std::span<const std::byte> bytes) {
      collector.add_window(at, bytes);
      decoded = at + bytes.size();
    };
    PackedChunks groups =
        TRY(FramedFile::scan(*file, compression, progress, visit));
    lines = collector.finish(decoded);
    return groups;
  };
  const auto kind = compression == Compression::kGzip ? kGzipKind : kZstdKind;
  const auto frames = TRY(
      load_or_scan_places(*file, kind, frame_paths(index_paths), scan_frames));
  const FilePtr decoded =
      TRY(FramedFile::open(file, compression, frames.places, std::move(cache)));
  auto index = TRY(line_index(*decoded, kDecodedLineKind, index_paths,
                              [&]() -> Result<PackedChunks> {
                                if (lines)
                                  return *std::exchange(lines, std::nullopt);
                                return scan_lines(*decoded, progress);
                              }));
  return IndexedLines{decoded, std::move(index)};
}

Result<IndexedLines> open_lines(const FilePtr& file,
                                std::span<const std::string> index_paths,
                                std::shared_ptr<ChunkCache> cache,
                                ScanProgress& progress) {
  // A file whose index is saved is not compressed.
  std::optional<Compression> compression;
  const auto scan = [&]() -> Result<PackedChunks> {
    compression = TRY(compression_of(*file));
    if (compression) return damaged("the file is compressed");
    return scan_lines(*file, progress);
  };
  auto index = line_index(*file, kLineKind, index_paths, scan);
  if (compression) {
    return open_compressed(file, *compression, index_paths, std::move(cache),
                           progress);
  }
  return IndexedLines{file, TRY(std::move(index))};
}

}  // namespace

Result<std::shared_ptr<const SpanFile>> open_line_file(
    File::Ptr file, std::span<const std::string> index_paths,
    std::shared_ptr<ChunkCache> cache, ScanProgress& progress) {
  const FilePtr shared = std::move(file);
  auto lines = open_lines(shared, index_paths, std::move(cache), progress);
  if (!lines.ok()) return add_file_context(*shared, lines.status());
  auto [text, index] = std::move(lines).value();
  return std::make_shared<const SpanFile>(std::move(text), std::move(index),
                                          "line");
}

}  // namespace gristmill
