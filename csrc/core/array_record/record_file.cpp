#include "core/array_record/record_file.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/array_record/direct_read.hpp"

namespace gristmill {
namespace {

using Request = RecordFile::Request;

// A thread keeps at most this much memory of each kind between reads.
constexpr std::size_t kMaxSpareBytes = std::size_t{4} << 20;

// A mapped range of more than some pages is asked for before it is touched.
constexpr std::uint64_t kWillNeedBytes = 4 * 4096;

std::string name_error(const File& file, const std::string& message) {
  const std::string changed = file.change();
  const bool said = message.find(changed) != std::string::npos;
  return file.path() + ": " + message + (said ? "" : "; " + changed);
}

std::size_t to_size(std::uint64_t value) {
  return static_cast<std::size_t>(value);
}

}  // namespace

// Memory that a thread works with.
struct RecordFile::Scratch {
  ByteBuffer raw;    // Bytes of the file.
  ByteBuffer more;   // Those of a chunk that was longer than expected.
  ByteBuffer spare;  // Data without block headers.

  void shrink() {
    raw.shrink(kMaxSpareBytes);
    more.shrink(kMaxSpareBytes);
    spare.shrink(kMaxSpareBytes);
  }
};

RecordFile::Scratch& RecordFile::scratch() {
  thread_local Scratch scratch;
  return scratch;
}

Result<std::shared_ptr<const RecordFile>> RecordFile::open(std::string path,
                                                           Options options) {
  auto file = LocalFile::open(std::move(path), options.access);
  if (!file.ok()) return file.status();
  return open(std::move(file).value(), options);
}

Result<std::shared_ptr<const RecordFile>> RecordFile::open(File::Ptr file,
                                                           Options options) {
  auto index = RecordIndex::read(*file, options.verify);
  if (!index.ok()) {
    const Status& status = index.status();
    if (status.is_external()) return status;
    return Status(status.code(), name_error(*file, status.message()));
  }
  return std::shared_ptr<const RecordFile>(
      new RecordFile(std::move(file), std::move(index).value(), options));
}

Status RecordFile::explain(const Status& status, std::int64_t record) const {
  const std::string which = "record " + std::to_string(record);
  if (status.code() == Code::kRaised) {
    return Status::raised(status.cause(), path() + ": " + which);
  }
  if (status.ok() || status.is_external()) return status;
  return Status(status.code(),
                name_error(*file_, which + ": " + status.message()));
}

// Far away, what lies near together is had by one read; that goes on for as
// long as one read may be, so that several make the best of many neighbours.
bool RecordFile::shares_work(std::int64_t left, std::int64_t right) const {
  const std::uint64_t group = index_.group_size();
  const std::uint64_t first = static_cast<std::uint64_t>(left) / group;
  const std::uint64_t second = static_cast<std::uint64_t>(right) / group;
  if (first == second) return true;
  const File::Hints& hints = file_->hints();
  if (hints.parallel == 1 || !knows_sizes()) return false;
  const auto here = index_.chunk(first);
  const auto there = index_.chunk(second);
  return here.begin / hints.run_bytes == there.begin / hints.run_bytes &&
         there.begin <= likely_end(here) + hints.gap_bytes;
}

// Touching what is no longer there would end the process.
Status RecordFile::check_mapped() const {
  if (file_->mapped().empty() || !file_->shrunk()) return {};
  return Status(Code::kInvalidArgument, path() + ": " + file_->change());
}

Status RecordFile::read(std::span<const Request> requests, Sink& sink) const {
  if (requests.empty()) return {};
  Status status = check_mapped();
  if (!status.ok()) return status;
  return knows_sizes() ? read_singles(requests, sink)
                       : read_grouped(requests, sink);
}

// Where the data of a chunk end, at a guess.  The chunk may be padded, and then
// its end is far away.
std::uint64_t RecordFile::likely_end(const PackedChunks::Chunk& chunk) const {
  const std::uint64_t sizes = 64 + 4 * index_.group_size();
  const std::uint64_t data =
      chunk.decoded_size + chunk.decoded_size / 64 + sizes;
  return std::min(chunk.end, skip_bytes(chunk.begin, kChunkHeaderBytes + data));
}

// Returns how many requests to serve by one read that ends at `end`.
std::size_t RecordFile::find_run(std::span<const Request> requests,
                                 std::uint64_t& end) const {
  const auto chunk_at = [&](std::size_t k) {
    return index_.chunk(static_cast<std::uint64_t>(requests[k].record));
  };
  const File::Hints& hints = file_->hints();
  const auto first = chunk_at(0);
  end = likely_end(first);
  std::size_t count = 1;
  for (; count < requests.size(); ++count) {
    const auto next = chunk_at(count);
    const std::uint64_t next_end = likely_end(next);
    if (next.begin > end + hints.gap_bytes ||
        next_end > first.begin + hints.run_bytes) {
      break;
    }
    end = std::max(end, next_end);
  }
  return count;
}

// Reads a large record that follows no other, the shortest way.
Status RecordFile::read_large(const Request& request, Sink& sink,
                              DirectChecks& checks, bool& done) const {
  const auto place = index_.chunk(static_cast<std::uint64_t>(request.record));
  done = false;
  if (!file_->mapped().empty() || !suits_direct_read(place)) return {};
  auto to = sink.place(request.slot, place.decoded_size);
  if (!to.ok()) return explain(to.status(), request.record);
  std::optional<DirectRecord> read;
  Status status =
      read_direct(*file_, place, verify_, to.value(), scratch().spare, read);
  if (!status.ok()) return explain(status, request.record);
  if (!read) return {};
  done = true;
  status = checks.add(*read, request.record);
  return status.ok() ? status : explain(status, checks.bad());
}

Status RecordFile::read_singles(std::span<const Request> requests,
                                Sink& sink) const {
  DirectChecks checks(verify_);
  const Status status = read_singles(requests, sink, checks);
  // A record that waits to be checked comes before one that cannot be read.
  const Status earlier = checks.finish();
  return earlier.ok() ? status : explain(earlier, checks.bad());
}

Status RecordFile::read_singles(std::span<const Request> requests, Sink& sink,
                                DirectChecks& checks) const {
  Scratch& spare = scratch();
  while (!requests.empty()) {
    std::uint64_t end = 0;
    const std::size_t count = find_run(requests, end);
    if (count == 1) {
      bool done = false;
      Status status = read_large(requests[0], sink, checks, done);
      if (!status.ok()) return status;
      if (done) {
        requests = requests.subspan(1);
        continue;
      }
    }
    const auto first =
        index_.chunk(static_cast<std::uint64_t>(requests[0].record));
    auto run = fetch(first.begin, end, spare.raw);
    if (!run.ok() && (count == 1 || run.status().code() == Code::kRaised)) {
      return explain(run.status(), requests[0].record);
    }
    for (const Request& request : requests.first(count)) {
      // Where reading all failed, some may still be had one by one.
      Status status = read_single(request, run.ok() ? run.value() : RawBytes(),
                                  spare, sink);
      if (!status.ok()) return explain(status, request.record);
    }
    requests = requests.subspan(count);
  }
  spare.shrink();
  return {};
}

Status RecordFile::read_single(const Request& request, const RawBytes& run,
                               Scratch& spare, Sink& sink) const {
  const auto record = static_cast<std::uint64_t>(request.record);
  const auto chunk = index_.chunk(record);
  RawBytes raw{chunk.begin, {}};
  if (chunk.begin >= run.begin && chunk.begin < run.end()) {
    raw.bytes = run.bytes.subspan(to_size(chunk.begin - run.begin));
  }
  ChunkView view;
  Status status = open_chunk(record, raw, spare.more, view);
  if (!status.ok()) return status;
  auto to = sink.place(request.slot, chunk.decoded_size);
  if (!to.ok()) return to.status();
  return view.read_only_record(to.value(), spare.spare);
}

Status RecordFile::read_grouped(std::span<const Request> requests,
                                Sink& sink) const {
  const std::uint64_t group = index_.group_size();
  std::uint64_t id = 0;
  ChunkCache::Chunk decoded;
  for (const Request& request : requests) {
    const auto record = static_cast<std::uint64_t>(request.record);
    if (!decoded || id != record / group) {
      id = record / group;
      decoded.reset();
      auto found = chunk(id);
      if (!found.ok()) return explain(found.status(), request.record);
      decoded = std::move(found).value();
    }
    const auto bytes = decoded->record(to_size(record % group));
    auto to = sink.place(request.slot, bytes.size());
    if (!to.ok()) return explain(to.status(), request.record);
    if (!bytes.empty()) {
      std::memcpy(to.value().data(), bytes.data(), bytes.size());
    }
  }
  return {};
}

Status RecordFile::sizes(std::span<const std::int64_t> records,
                         std::span<std::int64_t> sizes) const {
  auto planned = plan(records);
  if (!planned.ok()) return planned.status();
  if (!knows_sizes()) {
    Status status = check_mapped();
    if (!status.ok()) return status;
  }
  const std::uint64_t group = index_.group_size();
  std::uint64_t id = 0;
  ChunkCache::Chunk decoded;
  for (const Request& request : planned.value()) {
    const auto record = static_cast<std::uint64_t>(request.record);
    std::uint64_t size = 0;
    if (knows_sizes()) {
      size = index_.chunk(record).decoded_size;
    } else {
      if (!decoded || id != record / group) {
        id = record / group;
        decoded.reset();
        auto found = chunk(id);
        if (!found.ok()) return explain(found.status(), request.record);
        decoded = std::move(found).value();
      }
      size = decoded->record(to_size(record % group)).size();
    }
    sizes[request.slot] = static_cast<std::int64_t>(size);
  }
  return {};
}

Result<ChunkCache::Chunk> RecordFile::chunk(std::uint64_t chunk) const {
  return cache_->get(first_id_ + chunk,
                     [&](DecodedChunk& to) { return decode(chunk, to); });
}

Status RecordFile::decode(std::uint64_t chunk, DecodedChunk& to) const {
  Scratch& spare = scratch();
  const auto place = index_.chunk(chunk);
  auto raw = fetch(place.begin, likely_end(place), spare.raw);
  if (!raw.ok()) return raw.status();
  ChunkView view;
  Status status = open_chunk(chunk, raw.value(), spare.more, view);
  if (status.ok()) status = view.decode(to, spare.spare);
  spare.shrink();
  return status;
}

// Returns the bytes [begin, end) of the file, headers of blocks included.
Result<RawBytes> RecordFile::fetch(std::uint64_t begin, std::uint64_t end,
                                   ByteBuffer& buffer) const {
  const std::uint64_t size = end - begin;
  const auto mapped = file_->mapped();
  if (!mapped.empty()) {
    if (size > kWillNeedBytes) file_->will_need(begin, size);
    return RawBytes{begin, mapped.subspan(to_size(begin), to_size(size))};
  }
  if (!buffer.reset(size)) {
    return Status(Code::kNoMemory, "no memory for " + std::to_string(size) +
                                       " bytes at offset " +
                                       std::to_string(begin));
  }
  Status status = file_->read(begin, buffer.all());
  if (!status.ok()) return status;
  return RawBytes{begin, buffer.all()};
}

// Opens a view of a chunk of which `raw` holds the beginning, and perhaps all;
// what is missing is read to `buffer`.
Status RecordFile::open_chunk(std::uint64_t chunk, RawBytes raw,
                              ByteBuffer& buffer, ChunkView& view) const {
  const auto place = index_.chunk(chunk);
  constexpr std::uint64_t most_header =
      kChunkHeaderBytes + 2 * kBlockHeaderBytes;
  if (raw.bytes.size() < most_header && raw.end() < place.end) {
    auto all = fetch(place.begin, likely_end(place), buffer);
    if (!all.ok()) return all.status();
    raw = all.value();
  }
  Status status = open_as_listed(chunk, raw, view);
  if (!status.ok() || view.whole()) return status;
  auto all = fetch(place.begin, view.data_end(), buffer);
  if (!all.ok()) return all.status();
  // It may be another chunk by now: the file can change between two reads.
  status = open_as_listed(chunk, all.value(), view);
  if (!status.ok() || view.whole()) return status;
  return view.placed(
      Status(Code::kInvalidArgument, "it became longer while it was read"));
}

// Opens a view of a chunk, which must be as the footer says.
Status RecordFile::open_as_listed(std::uint64_t chunk, const RawBytes& raw,
                                  ChunkView& view) const {
  const auto place = index_.chunk(chunk);
  Status status = view.open(raw, place.end, verify_);
  if (!status.ok()) return status;
  const ChunkSizes& found = view.header().sizes;
  if (found.num_records != index_.records_in(chunk) ||
      found.decoded_size != place.decoded_size) {
    return view.placed(Status(Code::kInvalidArgument,
                              "it has " + std::to_string(found.num_records) +
                                  " records of " +
                                  std::to_string(found.decoded_size) +
                                  " bytes, expected by the footer " +
                                  std::to_string(index_.records_in(chunk)) +
                                  " of " + std::to_string(place.decoded_size)));
  }
  return {};
}

}  // namespace gristmill
