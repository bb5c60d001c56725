#include "core/array_record/record_file.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "core/array_record/direct_read.hpp"

namespace gristmill {
namespace {

using Request = RecordFile::Request;

// A thread keeps at most this much memory of each kind between reads.
constexpr std::size_t kMaxSpareBytes = std::size_t{4} << 20;

std::size_t to_size(std::uint64_t value) {
  return static_cast<std::size_t>(value);
}

}  // namespace

// Memory that a thread works with.
struct RecordFile::Scratch {
  ByteBuffer raw;    // Bytes of a chunk.
  ByteBuffer spare;  // Data without block headers.

  void shrink() {
    raw.shrink(kMaxSpareBytes);
    spare.shrink(kMaxSpareBytes);
  }
};

RecordFile::Scratch& RecordFile::scratch() {
  thread_local Scratch scratch;
  return scratch;
}

Result<std::shared_ptr<const RecordFile>> RecordFile::open(
    File::Ptr file, const Options& options) {
  auto index = RecordIndex::read(*file, options.verify);
  if (!index.ok()) return name_file(*file, index.status());
  return std::shared_ptr<const RecordFile>(
      new RecordFile(std::move(file), std::move(index).value(), options));
}

std::string RecordFile::describe(std::int64_t record) const {
  return "record " + std::to_string(record);
}

FileReader::Extent RecordFile::extent(std::int64_t record) const {
  return likely_extent(chunk_of(record));
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
  DirectChecks checks(verify_);
  const Status status = read_runs(
      requests,
      [&](const Request& request) { return read_large(request, sink, checks); },
      [&](const Request& request, const RawBytes& run) {
        return read_single(request, run, sink);
      });
  scratch().shrink();
  // A record that waits to be checked comes before one that cannot be read.
  const Status earlier = checks.finish();
  return earlier.ok() ? status : explain(earlier, checks.bad());
}

// Where a chunk lies, at a guess: it may be padded, and then its end is far
// behind its data.
FileReader::Extent RecordFile::likely_extent(std::uint64_t chunk) const {
  const auto place = index_.chunk(chunk);
  const std::uint64_t sizes = 64 + 4 * index_.group_size();
  const std::uint64_t data =
      place.decoded_size + place.decoded_size / 64 + sizes;
  return {
      place.begin,
      std::min(place.end, skip_bytes(place.begin, kChunkHeaderBytes + data))};
}

// Reads a large record the shortest way, if it has the form for it.
Result<bool> RecordFile::read_large(const Request& request, Sink& sink,
                                    DirectChecks& checks) const {
  const auto place = index_.chunk(chunk_of(request.record));
  if (!suits_direct_read(place)) return false;
  auto to = sink.place(request.slot, place.decoded_size);
  if (!to.ok()) return explain(to.status(), request.record);
  std::optional<DirectRecord> read;
  Status status =
      read_direct(file(), place, verify_, to.value(), scratch().spare, read);
  if (!status.ok()) return explain(status, request.record);
  if (!read) return false;
  status = checks.add(*read, request.record);
  if (!status.ok()) return explain(status, checks.bad());
  return true;
}

Status RecordFile::read_single(const Request& request, const RawBytes& run,
                               Sink& sink) const {
  const std::uint64_t chunk = chunk_of(request.record);
  const auto place = index_.chunk(chunk);
  const RawBytes raw{place.begin,
                     run.bytes.subspan(to_size(place.begin - run.begin))};
  ChunkView view;
  Status status = open_chunk(chunk, raw, scratch().raw, view);
  if (!status.ok()) return status;
  auto to = sink.place(request.slot, place.decoded_size);
  if (!to.ok()) return to.status();
  return view.read_only_record(to.value(), scratch().spare);
}

Status RecordFile::read_grouped(std::span<const Request> requests,
                                const Visit& visit) const {
  Status status = check_mapped();
  if (!status.ok()) return status;
  std::uint64_t id = 0;
  ChunkCache::Chunk decoded;
  for (const Request& request : requests) {
    if (!decoded || id != chunk_of(request.record)) {
      id = chunk_of(request.record);
      decoded.reset();
      auto found = chunk(id);
      if (!found.ok()) return explain(found.status(), request.record);
      decoded = std::move(found).value();
    }
    const auto record = static_cast<std::uint64_t>(request.record);
    status =
        visit(request, decoded->record(to_size(record % index_.group_size())));
    if (!status.ok()) return explain(status, request.record);
  }
  return {};
}

Status RecordFile::sizes(std::span<const std::int64_t> records,
                         std::span<std::int64_t> sizes) const {
  auto planned = plan(records);
  if (!planned.ok()) return planned.status();
  if (!knows_sizes()) {
    return read_grouped(
        planned.value(),
        [&](const Request& request, std::span<const std::byte> record) {
          sizes[request.slot] = static_cast<std::int64_t>(record.size());
          return Status();
        });
  }
  for (const Request& request : planned.value()) {
    sizes[request.slot] = static_cast<std::int64_t>(
        index_.chunk(chunk_of(request.record)).decoded_size);
  }
  return {};
}

Result<ChunkCache::Chunk> RecordFile::chunk(std::uint64_t chunk) const {
  return cache_->get(first_id_ + chunk,
                     [&](DecodedChunk& to) { return decode(chunk, to); });
}

Status RecordFile::decode(std::uint64_t chunk, DecodedChunk& to) const {
  Scratch& spare = scratch();
  auto raw = fetch(likely_extent(chunk), spare.raw);
  if (!raw.ok()) return raw.status();
  ChunkView view;
  Status status = open_chunk(chunk, raw.value(), spare.raw, view);
  if (status.ok()) status = view.decode(to, spare.spare);
  spare.shrink();
  return status;
}

// Opens a view of a chunk of which `raw` holds the beginning, and perhaps all;
// what is missing is read to `buffer`.
Status RecordFile::open_chunk(std::uint64_t chunk, const RawBytes& raw,
                              ByteBuffer& buffer, ChunkView& view) const {
  Status status = open_as_listed(chunk, raw, view);
  if (!status.ok() || view.whole()) return status;
  auto all = fetch({raw.begin, view.data_end()}, buffer);
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
