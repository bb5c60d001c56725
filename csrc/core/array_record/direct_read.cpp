#include "core/array_record/direct_read.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/varint.hpp"

namespace gristmill {
namespace {

// Smaller records are cheaper to copy than to scatter.
constexpr std::uint64_t kMinBytes = std::uint64_t{16} << 10;

// What comes before an uncompressed record in the data of its chunk: the
// codec, the length of the sizes, and the only size.
struct Prefix {
  explicit Prefix(std::uint64_t size) {
    bytes[1] = static_cast<std::byte>(varint_bytes(size));
    length = static_cast<std::size_t>(put_varint(&bytes[2], size) - &bytes[0]);
  }
  [[nodiscard]] std::span<const std::byte> all() const {
    return std::span(bytes).first(length);
  }

  std::array<std::byte, 2 + kMaxVarint> bytes{};
  std::size_t length = 0;
};

std::uint64_t plain_end(const PackedChunks::Chunk& chunk,
                        std::size_t prefix_bytes) {
  return skip_bytes(chunk.begin,
                    kChunkHeaderBytes + prefix_bytes + chunk.decoded_size);
}

// Splits what follows the prefix in the file into the record and the headers
// of blocks, which go to `headers`.
std::vector<std::span<std::byte>> split(std::uint64_t at,
                                        std::span<std::byte> record,
                                        std::span<std::byte> headers) {
  std::vector<std::span<std::byte>> parts;
  while (!record.empty()) {
    if (at % kBlockBytes == 0) {
      parts.push_back(headers.first(kBlockHeaderBytes));
      headers = headers.subspan(kBlockHeaderBytes);
      at += kBlockHeaderBytes;
    }
    const std::uint64_t run =
        std::min<std::uint64_t>(record.size(), kBlockBytes - at % kBlockBytes);
    parts.push_back(record.first(run));
    record = record.subspan(run);
    at += run;
  }
  return parts;
}

// Checks the headers of blocks among `parts`, which begin at `at`.
Status check_blocks(std::uint64_t at,
                    std::span<const std::span<std::byte>> parts) {
  for (const auto part : parts) {
    if (at % kBlockBytes == 0) {
      BlockWalk walk({at, part}, Verify::kHeaders);
      static_cast<void>(walk.next(0));
      if (!walk.status().ok()) return walk.status();
    }
    at += part.size();
  }
  return {};
}

}  // namespace

bool suits_direct_read(const PackedChunks::Chunk& chunk) {
  if (chunk.decoded_size < kMinBytes) return false;
  const std::size_t prefix = 2 + varint_bytes(chunk.decoded_size);
  return plain_end(chunk, prefix) == chunk.end;
}

Status read_direct(const File& file, const PackedChunks::Chunk& chunk,
                   Verify verify, std::span<std::byte> to, ByteBuffer& spare,
                   std::optional<DirectRecord>& read) {
  read.reset();
  const Prefix prefix(chunk.decoded_size);
  // The prefix may end where a block does; the next header is not part of it.
  const std::uint64_t middle =
      skip_bytes(chunk.begin, kChunkHeaderBytes + prefix.length);
  const std::uint64_t blocks = (chunk.end - middle) / kBlockBytes + 2;
  if (!spare.reset(middle - chunk.begin + blocks * kBlockHeaderBytes)) {
    return Status(Code::kNoMemory, "no memory for headers");
  }
  const auto start = spare.all().first(middle - chunk.begin);
  auto parts = split(middle, to, spare.all().subspan(start.size()));
  parts.insert(parts.begin(), start);
  Status status = file.read_parts(chunk.begin, parts);
  if (!status.ok()) return status;
  ChunkView view;
  status = view.open({chunk.begin, start}, chunk.end, verify);
  if (!status.ok()) return status;
  const ChunkHeader& header = view.header();
  std::array<std::byte, 2 + kMaxVarint> found;
  BlockWalk walk(
      {view.data_begin(), start.subspan(view.data_begin() - chunk.begin)},
      verify);
  if (header.type != 'r' || header.sizes.num_records != 1 ||
      header.sizes.decoded_size != chunk.decoded_size ||
      header.data_size != prefix.length + chunk.decoded_size ||
      !walk.fill(std::span(found).first(prefix.length)) ||
      !std::ranges::equal(std::span(found).first(prefix.length),
                          prefix.all())) {
    return {};  // Another form; or damage, which the general way explains.
  }
  if (verify != Verify::kNone) {
    status = check_blocks(middle, std::span(parts).subspan(1));
    if (!status.ok()) return view.placed(status);
  }
  HighwayHash hash(kRiegeliKey);
  hash.append(prefix.all());
  read.emplace(DirectRecord{view, hash, to});
  return {};
}

Status DirectChecks::add(const DirectRecord& record, std::int64_t number) {
  if (verify_ != Verify::kAll) return {};
  if (!waiting_) {
    waiting_.emplace(Waiting{record, number});
    return {};
  }
  Waiting first = *std::exchange(waiting_, std::nullopt);
  Waiting second{record, number};
  HighwayHash::append_both(first.record.hash, first.record.bytes,
                           second.record.hash, second.record.bytes);
  Status status = check(first);
  return status.ok() ? check(second) : status;
}

Status DirectChecks::finish() {
  if (!waiting_) return {};
  Waiting last = *std::exchange(waiting_, std::nullopt);
  last.record.hash.append(last.record.bytes);
  return check(last);
}

Status DirectChecks::check(const Waiting& read) {
  bad_ = read.number;
  const ChunkView& view = read.record.view;
  return view.placed(view.check_data(read.record.hash));
}

}  // namespace gristmill
