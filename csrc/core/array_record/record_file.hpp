// A RecordFile reads the records of an ArrayRecord file in any order.
//
// If a file has one record per chunk, each record is decoded directly to its
// destination.  Larger chunks are decoded once and cached for a while.
//
// Thread safety: const methods may overlap.  The reading thread calls the Sink.
//
// Fork: a child may continue to read, see ChunkCache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/array_record/chunk_cache.hpp"
#include "core/array_record/record_index.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/file_reader.hpp"
#include "core/files/file_stamp.hpp"

namespace gristmill {

class RecordFile final : public FileReader {
 public:
  struct Options {
    Verify verify = Verify::kAll;
    // Keeps decoded chunks.  If null, the file gets a cache of its own.
    std::shared_ptr<ChunkCache> cache = nullptr;
    // The expected version of the file.  If empty, any version is accepted.
    std::optional<FileStamp> stamp = std::nullopt;
    // Paths at which a long index may be saved, in the order of preference.
    std::vector<std::string> index_paths = {};
  };

  ~RecordFile() override { cache_->drop(first_id_, index_.num_chunks()); }

  // Reads the index of a file.  Errors name the file, and the offset of damaged
  // data.
  static Result<std::shared_ptr<const RecordFile>> open(File::Ptr file,
                                                        const Options& options);

  // Counts the records of the local files at `paths` in several threads.
  static std::vector<Result<RecordCount>> count(
      std::span<const std::string> paths, Verify verify);

  // Counts the records of a file.
  static Result<RecordCount> count(const File& file, Verify verify);

  [[nodiscard]] std::uint64_t size() const override {
    return index_.num_records;
  }
  [[nodiscard]] bool knows_sizes() const override {
    return index_.group_size == 1;
  }
  Status sizes(std::span<const Request> requests,
               std::span<std::int64_t> sizes) const override;
  [[nodiscard]] bool shares_work(std::int64_t left,
                                 std::int64_t right) const override;
  Status read(std::span<const Request> requests, Sink& sink) const override;

  [[nodiscard]] const RecordIndex& index() const { return index_; }

 private:
  RecordFile(File::Ptr file, RecordIndex index, const Options& options)
      : FileReader(std::move(file)),
        index_(std::move(index)),
        verify_(options.verify),
        cache_(options.cache ? options.cache
                             : std::make_shared<ChunkCache>(kCacheBytes)),
        first_id_(cache_->reserve(index_.num_chunks())) {}

  static constexpr std::size_t kCacheBytes = std::size_t{64} << 20;

  // Receives a record of a decoded chunk.
  using Visit =
      std::function<Status(const Request&, std::span<const std::byte>)>;

  [[nodiscard]] std::uint64_t chunk_of(std::int64_t record) const {
    return static_cast<std::uint64_t>(record) / index_.group_size;
  }
  [[nodiscard]] Extent extent(std::int64_t record) const override;
  [[nodiscard]] bool is_cached(std::int64_t record) const override {
    return !knows_sizes() && cache_->has(first_id_ + chunk_of(record));
  }
  [[nodiscard]] std::string describe(std::int64_t record) const override;

  Status read_single(const Request& request, const RawBytes& run, Sink& sink,
                     std::optional<UncheckedRecord>& unchecked) const;
  Status read_grouped(std::span<const Request> requests,
                      const Visit& visit) const;
  Status decode(std::int64_t record, DecodedChunk& to) const;
  Status open_chunk(std::uint64_t chunk, const RawBytes& raw,
                    ChunkView& view) const;
  Status open_and_compare(std::uint64_t chunk, const RawBytes& raw,
                          ChunkView& view) const;

  const RecordIndex index_;
  const Verify verify_;
  const std::shared_ptr<ChunkCache> cache_;
  const std::uint64_t first_id_;  // Cache id of the first chunk.
};

}  // namespace gristmill
