#include "core/tar/tar_index.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>

#include "core/files/shared_index.hpp"
#include "core/files/verify.hpp"
#include "core/tar/tar_name.hpp"
#include "core/tar/tar_sample.hpp"
#include "core/tar/tar_walk.hpp"

namespace gristmill {
namespace {

// Bytes read for a member: a pax header, its records, and the member's header.
constexpr std::uint64_t kMinHeadReadBytes = 4 * kTarBlock;

// Stored in an index in place of the hash that other formats have.  It stands
// for tar files and this version of the rules for samples.
constexpr std::uint64_t kKind = 0x31726174;  // "tar1"

// webdataset skips samples in which this field is not empty.
constexpr std::string_view kBadField = "__bad__";

Status check_begin(const File& file) {
  if (file.size() == 0) return damaged("the file is empty");
  std::array<std::byte, 8> bytes;
  const auto size = std::min<std::uint64_t>(file.size(), bytes.size());
  const auto begin = std::span(bytes).first(static_cast<std::size_t>(size));
  TRY(file.read(0, begin));
  const auto compression = tar_compression(begin);
  if (compression.empty()) return {};
  return damaged("the file is compressed with ", compression,
                 ", so it can only be read from its start: unpack it to a "
                 ".tar file, which is hardly larger if its members are images");
}

// The sample to which scan() adds members.
struct OpenSample {
  std::string key;
  TarIndex::ByteRange range;
  bool is_bad = false;
};

Result<PackedChunks> scan(const File& file, ScanProgress& progress) {
  TRY(check_begin(file));
  HeadReader heads(file, kMinHeadReadBytes, progress);
  std::uint64_t members = 0;
  TarWalk walk(
      [&](std::uint64_t at, std::uint64_t size) {
        return heads.read(at, size, members);
      },
      0, file.size());
  PackedChunks places;
  std::optional<OpenSample> sample;
  const auto add_sample = [&] {
    if (!sample || sample->is_bad) return;
    const auto& [begin, end] = sample->range;
    places.add(begin, end - begin);
  };
  for (; TRY(walk.next()); ++members) {
    const TarMember& member = walk.member();
    if (!member.is_regular) continue;
    const auto field = tar_field(member.name);
    if (!field) continue;
    if (!sample || sample->key != field->key) {
      add_sample();
      sample = OpenSample{std::string(field->key), {member.begin, 0}};
    }
    sample->range.end = member.end();
    sample->is_bad |=
        member.size > 0 && tar_lowercase(field->extension) == kBadField;
  }
  add_sample();
  places.finish(file.size());
  progress.done_bytes.store(file.size(), std::memory_order_relaxed);
  return places;
}

}  // namespace

Result<TarIndex> TarIndex::read(const File& file,
                                std::span<const std::string> index_paths,
                                ScanProgress& progress) {
  auto scanned = TRY(load_or_scan_places(file, kKind, index_paths,
                                         [&] { return scan(file, progress); }));
  return TarIndex(std::move(scanned.places));
}

}  // namespace gristmill
