#include "core/array_record/record_file.hpp"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "core/base/pool.hpp"
#include "core/files/local_file.hpp"

namespace gristmill {
namespace {

using Request = RecordFile::Request;

// Maximum memory of each kind that a thread keeps between reads.
constexpr std::size_t kMaxSpareBytes = std::size_t{4} << 20;

// This exceeds the number of cores, because each thread waits for the disk.
constexpr std::size_t kCountingThreads = 16;

// Scratch memory of a thread.
struct Scratch {
  ByteBuffer raw;   // Bytes of a chunk.
  ByteBuffer data;  // Data of a chunk without block headers.

  void shrink() {
    raw.shrink(kMaxSpareBytes);
    data.shrink(kMaxSpareBytes);
  }
};

Scratch& scratch() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace

Result<std::shared_ptr<const RecordFile>> RecordFile::open(
    File::Ptr file, const Options& options) {
  TRY(check_stamp(*file, options.stamp));
  auto index = RecordIndex::read(*file, options.verify, options.index_paths);
  if (!index.ok()) return add_file_context(*file, index.status());
  return std::shared_ptr<const RecordFile>(
      new RecordFile(std::move(file), std::move(index).value(), options));
}

Result<RecordCount> RecordFile::count(const File& file, Verify verify) {
  auto count = RecordCount::read(file, verify);
  if (!count.ok()) return add_file_context(file, count.status());
  return count;
}

std::vector<Result<RecordCount>> RecordFile::count(
    std::span<const std::string> paths, Verify verify) {
  const auto count_one = [&](const std::string& path) -> Result<RecordCount> {
    const auto file = TRY(LocalFile::open(path, LocalFile::Access::kPread));
    return count(*file, verify);
  };
  std::vector<Result<RecordCount>> counts(paths.size(), RecordCount());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < paths.size(); i = next++) {
      counts[i] = count_one(paths[i]);
    }
  };
  const std::size_t threads = std::min(kCountingThreads, paths.size());
  if (threads < 2) {
    work();
    return counts;
  }
  Pool pool(threads - 1);
  TaskGroup group;
  for (std::size_t i = 1; i < threads; ++i) pool.run(group, work);
  work();
  static_cast<void>(group.wait());
  return counts;
}

std::string RecordFile::describe(std::int64_t record) const {
  return concat("record ", record);
}

bool RecordFile::shares_work(std::int64_t left, std::int64_t right) const {
  if (chunk_of(left) == chunk_of(right)) return true;
  return knows_sizes() && FileReader::shares_work(left, right);
}

Status RecordFile::read(std::span<const Request> requests, Sink& sink) const {
  if (!knows_sizes()) {
    return read_grouped(
        requests, [&](const Request& request, std::span<const std::byte> from) {
          auto to = sink.place(request.slot, from.size());
          if (to.ok()) std::ranges::copy(from, to.value().begin());
          return to.status();
        });
  }
  RecordHashChecker checker;
  const Status status = read_runs(
      requests, [&](const Request& request, const RawBytes& run) -> Status {
        std::optional<UncheckedRecord> unchecked;
        TRY(add_record_context(read_single(request, run, sink, unchecked),
                               request.record));
        if (!unchecked) return {};
        unchecked->number = request.record;
        const Status hash_status = checker.add(*unchecked);
        return hash_status.ok()
                   ? hash_status
                   : add_record_context(hash_status, checker.failed_record());
      });
  scratch().shrink();
  // An unchecked record comes before the record that could not be read, so its
  // error takes precedence.
  const Status last_hash_status = checker.finish();
  return last_hash_status.ok()
             ? status
             : add_record_context(last_hash_status, checker.failed_record());
}

// Estimates the extent of the chunk of a record.  A padded chunk ends long
// after its data.  The estimate assumes that compression enlarges the records
// by at most 1/64, and that a size takes 4 bytes.  If it is too small,
// open_chunk() reads the rest.
FileReader::Extent RecordFile::extent(std::int64_t record) const {
  const auto listed = index_.chunks.at(chunk_of(record));
  const std::uint64_t sizes = 64 + 4 * index_.group_size;
  const std::uint64_t data =
      listed.decoded_size + listed.decoded_size / 64 + sizes;
  return {
      listed.begin,
      std::min(listed.end, skip_bytes(listed.begin, kChunkHeaderBytes + data))};
}

Status RecordFile::read_single(
    const Request& request, const RawBytes& run, Sink& sink,
    std::optional<UncheckedRecord>& unchecked) const {
  const std::uint64_t chunk = chunk_of(request.record);
  const auto listed = index_.chunks.at(chunk);
  ChunkView view;
  TRY(open_chunk(chunk, run.from(listed.begin), view));
  const auto to = TRY(sink.place(request.slot, listed.decoded_size));
  return view.read_single_record(to, scratch().data, unchecked);
}

Status RecordFile::read_grouped(std::span<const Request> requests,
                                const Visit& visit) const {
  TRY(check_mapped());
  std::uint64_t chunk_number = 0;
  ChunkCache::Chunk decoded;
  for (const Request& request : requests) {
    if (!decoded || chunk_number != chunk_of(request.record)) {
      chunk_number = chunk_of(request.record);
      decoded.reset();
      auto found = cache_->get(first_id_ + chunk_number, [&](DecodedChunk& to) {
        return decode(request.record, to);
      });
      if (!found.ok()) {
        return add_record_context(found.status(), request.record);
      }
      decoded = std::move(found).value();
    }
    const auto record = static_cast<std::uint64_t>(request.record);
    TRY(add_record_context(
        visit(request, decoded->record(record % index_.group_size)),
        request.record));
  }
  return {};
}

Status RecordFile::sizes(std::span<const Request> requests,
                         std::span<std::int64_t> sizes) const {
  if (!knows_sizes()) {
    return read_grouped(requests, [&](const Request& request,
                                      std::span<const std::byte> record) {
      sizes[request.slot] = static_cast<std::int64_t>(record.size());
      return Status();
    });
  }
  for (const Request& request : requests) {
    sizes[request.slot] = static_cast<std::int64_t>(
        index_.chunks.at(chunk_of(request.record)).decoded_size);
  }
  return {};
}

// Decodes the chunk of a record.
Status RecordFile::decode(std::int64_t record, DecodedChunk& to) const {
  Scratch& scratch_memory = scratch();
  const RawBytes raw = TRY(fetch(extent(record), scratch_memory.raw));
  ChunkView view;
  Status status = open_chunk(chunk_of(record), raw, view);
  if (status.ok()) status = view.decode(to, scratch_memory.data);
  scratch_memory.shrink();
  return status;
}

// Opens a view of a chunk.  `raw` holds the beginning of the chunk, and perhaps
// all of it.  Reads the missing bytes.
Status RecordFile::open_chunk(std::uint64_t chunk, const RawBytes& raw,
                              ChunkView& view) const {
  TRY(open_and_compare(chunk, raw, view));
  if (view.is_complete()) return {};
  const auto all = TRY(fetch({raw.begin, view.data_end()}, scratch().raw));
  // The file may change between two reads, so check the chunk again.
  TRY(open_and_compare(chunk, all, view));
  if (view.is_complete()) return {};
  return view.add_chunk_context(damaged("it grew while it was read"));
}

// Opens a view of a chunk, which must agree with the footer.
Status RecordFile::open_and_compare(std::uint64_t chunk, const RawBytes& raw,
                                    ChunkView& view) const {
  const auto listed = index_.chunks.at(chunk);
  TRY(view.open(raw, listed.end, verify_));
  const ChunkSizes& found = view.header().sizes;
  const std::uint64_t records = index_.records_in(chunk);
  if (found.num_records == records &&
      found.decoded_size == listed.decoded_size) {
    return {};
  }
  return view.add_chunk_context(
      damaged("it has ", found.num_records, " records of ", found.decoded_size,
              " bytes, but the footer lists ", records, " records of ",
              listed.decoded_size, " bytes"));
}

}  // namespace gristmill
