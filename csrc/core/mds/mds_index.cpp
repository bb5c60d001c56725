#include "core/mds/mds_index.hpp"

#include "core/base/varint.hpp"
#include "core/files/file_reader.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

constexpr std::uint64_t kNumberBytes = sizeof(std::uint32_t);

constexpr const char* kHint =
    ": it was cut off, is still being written, or belongs to another data set";

}  // namespace

Result<std::unique_ptr<const MdsIndex>> MdsIndex::open(
    File::Ptr file, const ShardSize& expected) {
  std::unique_ptr<MdsIndex> index(new MdsIndex(std::move(file)));
  const Status status = index->load(expected);
  if (!status.ok()) return add_file_context(*index->file_, status);
  return std::unique_ptr<const MdsIndex>(std::move(index));
}

Status MdsIndex::load(const ShardSize& expected) {
  const std::uint64_t size = file_->size();
  if (size != expected.bytes) {
    return damaged("the file has ", found(size, expected.bytes),
                   " by index.json", kHint);
  }
  // No number overflows: `size` is less than 2^63.
  if (expected.samples > size / kNumberBytes ||
      (expected.samples + 2) * kNumberBytes > size) {
    return damaged("the file has ", size, " bytes, expected at least 4 * (2 + ",
                   expected.samples, " samples)", kHint);
  }
  const std::uint64_t list_bytes = (expected.samples + 2) * kNumberBytes;
  std::span<const std::byte> bytes = file_->mapped();
  if (bytes.empty()) {
    if (!file_bytes_.reset(list_bytes)) {
      return no_memory_for("its list of samples");
    }
    TRY(file_->read(0, file_bytes_.all()));
    bytes = file_bytes_.all();
  }
  const auto samples = load_le<std::uint32_t>(bytes.data());
  if (samples != expected.samples) {
    return damaged("offset 0: the number of samples is ",
                   found(samples, expected.samples), " by index.json", kHint);
  }
  num_samples_ = samples;
  offsets_ = bytes.subspan(kNumberBytes, list_bytes - kNumberBytes);
  return {};
}

MdsIndex::Span MdsIndex::at(std::uint64_t i) const {
  const std::byte* const offset = offsets_.data() + i * kNumberBytes;
  return {load_le<std::uint32_t>(offset),
          load_le<std::uint32_t>(offset + kNumberBytes)};
}

}  // namespace gristmill
