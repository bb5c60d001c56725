#include "core/lines/framed_file.hpp"

#include <algorithm>

#include "core/base/byte_buffer.hpp"
#include "core/files/file_scan.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

constexpr std::size_t kScanBytes = std::size_t{256} << 10;

// Maximum memory that a thread keeps between reads.
constexpr std::size_t kMaxSpareFrameBytes = std::size_t{4} << 20;

ByteBuffer& frame_buffer() {
  thread_local ByteBuffer buffer;
  return buffer;
}

Status add_frame_context(Compression compression, std::uint64_t offset,
                         const Status& status) {
  if (status.ok() || status.is_external()) return status;
  return Status(status.code(), "the ", name_of(compression),
                " frame at offset ", offset, ": ", status.message());
}

// Decompresses consecutive windows of a file and lists the groups of frames.
class GroupCollector {
 public:
  GroupCollector(Compression compression, FrameStream& stream,
                 const FramedFile::Visit& visit)
      : compression_(compression), stream_(stream), visit_(visit) {}

  // `at` is the offset of the window in the file.
  Status add_window(std::uint64_t at, std::span<const std::byte> window) {
    if (!piece_.reset(kScanBytes)) return no_memory_for("decompressing");
    for (bool has_more = true; has_more;) {
      auto stepped = stream_.step(window, piece_.all());
      if (!stepped.ok()) return add_context(stepped.status());
      const FrameStream::Step step = stepped.value();
      visit_(decoded_, piece_.all().first(step.num_written));
      decoded_ += step.num_written;
      frame_bytes_ += step.num_written;
      if (frame_bytes_ > FramedFile::kMaxFrameBytes) return too_large();
      at += step.num_read;
      window = window.subspan(step.num_read);
      in_frame_ = !step.is_frame_end && (in_frame_ || step.num_read > 0);
      if (step.is_frame_end) end_frame(at);
      has_more = !window.empty() || step.num_written == kScanBytes;
    }
    return {};
  }

  // Returns the groups of the file, which has `file_size` bytes.
  Result<PackedChunks> finish(std::uint64_t file_size) {
    if (in_frame_) {
      return add_context(damaged("the file ends within the frame"));
    }
    if (group_begin_ < file_size) end_group(file_size);
    groups_.finish(file_size);
    return std::move(groups_);
  }

 private:
  void end_frame(std::uint64_t end) {
    frame_begin_ = end;
    frame_bytes_ = 0;
    if (decoded_ - group_decoded_ >= FramedFile::kMinGroupBytes) end_group(end);
  }

  void end_group(std::uint64_t end) {
    groups_.add(group_begin_, decoded_ - group_decoded_);
    group_begin_ = end;
    group_decoded_ = decoded_;
  }

  [[nodiscard]] Status add_context(const Status& status) const {
    return add_frame_context(compression_, frame_begin_, status);
  }

  [[nodiscard]] Status too_large() const {
    const bool gzip = compression_ == Compression::kGzip;
    return add_context(damaged(
        "it decompresses to more than ", FramedFile::kMaxFrameBytes,
        " bytes, and to read one of its lines, all of it is decompressed: "
        "compress the file in smaller frames (",
        gzip ? "bgzip" : "pzstd, or zstd's seekable format",
        "), or convert it to an ArrayRecord file by `gristmill convert`"));
  }

  const Compression compression_;
  FrameStream& stream_;
  const FramedFile::Visit& visit_;
  ByteBuffer piece_;
  PackedChunks groups_;
  bool in_frame_ = false;
  std::uint64_t frame_begin_ = 0;    // Offset of the current frame in the file.
  std::uint64_t frame_bytes_ = 0;    // Its decompressed bytes up to now.
  std::uint64_t group_begin_ = 0;    // Offset of the current group in the file,
  std::uint64_t group_decoded_ = 0;  // and in the decompressed bytes.
  std::uint64_t decoded_ = 0;        // All decompressed bytes up to now.
};

}  // namespace

Result<PackedChunks> FramedFile::scan(const File& file, Compression compression,
                                      ScanProgress& progress,
                                      const Visit& visit) {
  const auto stream = TRY(FrameStream::create(compression));
  GroupCollector collector(compression, *stream, visit);
  TRY(scan_file(file, 0, progress, [&](std::uint64_t at, auto window) {
    return collector.add_window(at, window);
  }));
  return collector.finish(file.size());
}

Result<File::Ptr> FramedFile::open(std::shared_ptr<const File> file,
                                   Compression compression,
                                   const PackedChunks& groups,
                                   std::shared_ptr<ChunkCache> cache) {
  std::vector<Group> list;
  list.reserve(groups.size() + 1);
  std::uint64_t decoded = 0;
  for (std::uint64_t i = 0; i < groups.size(); ++i) {
    const auto group = groups.at(i);
    const bool ascends = list.empty() || list.back().begin <= group.begin;
    if (!ascends || group.decoded_size > kMinGroupBytes + kMaxFrameBytes) {
      return damaged("the index of its frames lists ", group.decoded_size,
                     " bytes for the frames at offset ", group.begin,
                     ", which cannot be: delete the index");
    }
    list.push_back({group.begin, decoded});
    decoded += group.decoded_size;
  }
  list.push_back({file->size(), decoded});
  return Ptr(new FramedFile(std::move(file), compression, std::move(list),
                            std::move(cache)));
}

FramedFile::FramedFile(std::shared_ptr<const File> file,
                       Compression compression, std::vector<Group> groups,
                       std::shared_ptr<ChunkCache> cache)
    : File(file->path(), groups.back().decoded_begin,
           {.run_bytes = file->hints().run_bytes,
            .parallel = file->hints().parallel}),
      file_(std::move(file)),
      compression_(compression),
      groups_(std::move(groups)),
      cache_(std::move(cache)),
      first_id_(cache_->reserve(groups_.size())) {}

std::size_t FramedFile::group_at(std::uint64_t offset) const {
  const auto next =
      std::ranges::upper_bound(groups_, offset, {}, &Group::decoded_begin);
  return static_cast<std::size_t>(next - groups_.begin()) - 1;
}

Status FramedFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  if (to.empty()) return {};
  const std::uint64_t end = offset + to.size();
  const std::size_t last = group_at(end - 1);
  Loaded loaded;
  for (std::size_t i = group_at(offset); i <= last; ++i) {
    const auto chunk =
        TRY(cache_->get(first_id_ + i, [&](DecodedChunk& decoded) {
          return decode(i, last, loaded, decoded);
        }));
    const std::uint64_t begin = groups_[i].decoded_begin;
    const std::uint64_t first = std::max(offset, begin);
    const std::uint64_t stop = std::min(end, groups_[i + 1].decoded_begin);
    std::ranges::copy(chunk->values.all().subspan(first - begin, stop - first),
                      to.subspan(first - offset).begin());
  }
  frame_buffer().shrink(kMaxSpareFrameBytes);
  return {};
}

// Decompresses a group.  If it is not in `loaded`, loads it and the groups up
// to `last`.
Status FramedFile::decode(std::size_t group, std::size_t last, Loaded& loaded,
                          DecodedChunk& to) const {
  if (group < loaded.first || group >= loaded.end) {
    loaded = TRY(load(group, last));
  }
  const auto& [begin, decoded_begin] = groups_[group];
  const auto& next = groups_[group + 1];
  if (!to.values.reset(next.decoded_begin - decoded_begin)) {
    return no_memory_for("a decompressed frame");
  }
  const auto from = loaded.bytes.subspan(begin - groups_[loaded.first].begin,
                                         next.begin - begin);
  return add_frame_context(
      compression_, begin,
      decompress_frames(compression_, from, to.values.all()));
}

// Loads the compressed bytes of group `first`, and with the same read those of
// the next groups up to `last` that are not cached.
Result<FramedFile::Loaded> FramedFile::load(std::size_t first,
                                            std::size_t last) const {
  std::size_t end = first + 1;
  while (end <= last && !cache_->has(first_id_ + end)) ++end;
  const std::uint64_t begin = groups_[first].begin;
  const std::uint64_t size = groups_[end].begin - begin;
  const auto mapped = file_->mapped();
  if (!mapped.empty()) {
    if (file_->has_shrunk()) return damaged(file_->describe_change());
    file_->will_need(begin, size);
    return Loaded{first, end, mapped.subspan(begin, size)};
  }
  ByteBuffer& buffer = frame_buffer();
  if (!buffer.reset(size)) return no_memory_for(size, " bytes of frames");
  TRY(file_->read(begin, buffer.all()));
  return Loaded{first, end, buffer.all()};
}

}  // namespace gristmill
