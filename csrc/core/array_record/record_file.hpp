// A RecordFile reads the records of an ArrayRecord file, in any order.
//
// A file with one record to a chunk is read straight to where the records go;
// chunks of more records are decoded once and kept for a while.
//
// Thread safety: const methods may overlap; the Sink is called by the thread
// that reads.
//
// Fork: a child may go on reading; it has no share in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/array_record/chunk_cache.hpp"
#include "core/array_record/record_index.hpp"
#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/local_file.hpp"
#include "core/files/record_reader.hpp"

namespace gristmill {

class DirectChecks;

class RecordFile final : public RecordReader {
 public:
  struct Options {
    Verify verify = Verify::kAll;
    LocalFile::Access access = LocalFile::Access::kPread;  // Of a path.
    std::size_t cache_bytes = std::size_t{64} << 20;
    // Keeps decoded chunks; null for a cache of the file's own, of
    // `cache_bytes`.
    std::shared_ptr<ChunkCache> cache = nullptr;
  };

  ~RecordFile() override { cache_->forget(first_id_, index_.num_chunks()); }

  // Opens the file and reads its index.  Every error names the file, and where
  // in it something is not as expected.
  static Result<std::shared_ptr<const RecordFile>> open(std::string path,
                                                        Options options);
  static Result<std::shared_ptr<const RecordFile>> open(File::Ptr file,
                                                        Options options);

  [[nodiscard]] const std::string& path() const override {
    return file_->path();
  }
  [[nodiscard]] std::uint64_t size() const override {
    return index_.num_records();
  }
  [[nodiscard]] bool knows_sizes() const override {
    return index_.group_size() == 1;
  }
  Status sizes(std::span<const std::int64_t> records,
               std::span<std::int64_t> sizes) const override;
  [[nodiscard]] bool shares_work(std::int64_t left,
                                 std::int64_t right) const override;
  [[nodiscard]] std::size_t parallel() const override {
    return file_->hints().parallel;
  }
  Status read(std::span<const Request> requests, Sink& sink) const override;

  [[nodiscard]] const RecordIndex& index() const { return index_; }
  [[nodiscard]] const ChunkCache& cache() const { return *cache_; }

 private:
  RecordFile(File::Ptr file, RecordIndex index, const Options& options)
      : file_(std::move(file)),
        index_(std::move(index)),
        verify_(options.verify),
        cache_(options.cache
                   ? options.cache
                   : std::make_shared<ChunkCache>(options.cache_bytes)),
        first_id_(cache_->reserve(index_.num_chunks())) {}

  struct Scratch;
  static Scratch& scratch();

  Status check_mapped() const;
  Status read_singles(std::span<const Request> requests, Sink& sink) const;
  Status read_singles(std::span<const Request> requests, Sink& sink,
                      DirectChecks& checks) const;
  Status read_large(const Request& request, Sink& sink, DirectChecks& checks,
                    bool& done) const;
  std::size_t find_run(std::span<const Request> requests,
                       std::uint64_t& end) const;
  Status read_single(const Request& request, const RawBytes& run,
                     Scratch& spare, Sink& sink) const;
  Status read_grouped(std::span<const Request> requests, Sink& sink) const;
  Result<ChunkCache::Chunk> chunk(std::uint64_t chunk) const;
  Status decode(std::uint64_t chunk, DecodedChunk& to) const;

  Result<RawBytes> fetch(std::uint64_t begin, std::uint64_t end,
                         ByteBuffer& buffer) const;
  Status open_chunk(std::uint64_t chunk, RawBytes raw, ByteBuffer& buffer,
                    ChunkView& view) const;
  Status open_as_listed(std::uint64_t chunk, const RawBytes& raw,
                        ChunkView& view) const;
  [[nodiscard]] std::uint64_t likely_end(
      const PackedChunks::Chunk& chunk) const;
  [[nodiscard]] Status explain(const Status& status, std::int64_t record) const;

  const File::Ptr file_;
  const RecordIndex index_;
  const Verify verify_;
  const std::shared_ptr<ChunkCache> cache_;
  const std::uint64_t first_id_;  // Of its chunks, in the cache.
};

}  // namespace gristmill
