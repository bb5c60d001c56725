// A RecordFile reads the records of an ArrayRecord file, in any order.
//
// Records come to memory that the caller provides, through a Sink.  A file
// with one record to a chunk is read straight to there; chunks of more records
// are decoded once and kept for a while.
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

#include "core/chunk_cache.hpp"
#include "core/file.hpp"
#include "core/record_index.hpp"
#include "core/status.hpp"

namespace gristmill {

class RecordFile {
 public:
  struct Options {
    Verify verify = Verify::kAll;
    File::Access access = File::Access::kPread;
    std::size_t cache_bytes = std::size_t{64} << 20;
  };

  // One record to read, and its number among those read together.
  struct Request {
    std::int64_t record = 0;
    std::size_t slot = 0;
  };

  class Sink {
   public:
    virtual ~Sink() = default;

    // Returns memory for a record of `size` bytes, which is written before the
    // call that reads returns.
    virtual Result<std::span<std::byte>> place(std::size_t slot,
                                               std::uint64_t size) = 0;
  };

  // Opens the file and reads its index.  Every error names the file, and where
  // in it something is not as expected.
  static Result<std::shared_ptr<const RecordFile>> open(std::string path,
                                                        Options options);

  [[nodiscard]] std::uint64_t size() const { return index_.num_records(); }
  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const RecordIndex& index() const { return index_; }
  [[nodiscard]] const ChunkCache& cache() const { return cache_; }

  // True if sizes of records are known without reading any.
  [[nodiscard]] bool knows_sizes() const { return index_.group_size() == 1; }

  // Writes the size of each record to `sizes`, as long as `records`.
  Status sizes(std::span<const std::int64_t> records,
               std::span<std::int64_t> sizes) const;

  // Checks that each of `records` is in [0, size()), and sorts them.
  Result<std::vector<Request>> plan(
      std::span<const std::int64_t> records) const;

  // Cuts sorted requests in at most `parts` spans of about equal length that
  // share no chunk.
  [[nodiscard]] std::vector<std::span<const Request>> cut(
      std::span<const Request> requests, std::size_t parts) const;

  // Reads the records of `requests`, which are in order of `record`.  Stops at
  // the first error.
  Status read(std::span<const Request> requests, Sink& sink) const;

 private:
  RecordFile(File file, RecordIndex index, const Options& options)
      : file_(std::move(file)),
        index_(std::move(index)),
        verify_(options.verify),
        cache_(options.cache_bytes) {}

  struct Scratch;
  static Scratch& scratch();

  Status check_mapped() const;
  Status read_singles(std::span<const Request> requests, Sink& sink) const;
  Status read_large(const Request& request, Sink& sink, bool& done) const;
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
  [[nodiscard]] std::uint64_t likely_end(
      const PackedChunks::Chunk& chunk) const;
  [[nodiscard]] Status explain(const Status& status, std::int64_t record) const;

  const File file_;
  const RecordIndex index_;
  const Verify verify_;
  mutable ChunkCache cache_;
};

}  // namespace gristmill
