#include "core/tokens/megatron_index.hpp"

#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/highway_hash.hpp"
#include "core/base/varint.hpp"
#include "core/files/file_reader.hpp"
#include "core/files/file_stamp.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::uint64_t kHeaderBytes = 34;
// The key of the hash of the file and the unit.
constexpr HighwayHash::Key kRuleKey{0x316d6d69, 0, 0, 0};  // "imm1"
// Bytes of a token by the code of its dtype: none, uint8, int8, int16, int32,
// int64, float64, float32, uint16.
constexpr std::array<std::uint64_t, 9> kTokenBytes{0, 1, 1, 2, 4, 8, 8, 4, 2};

constexpr const char* kHint =
    ": it was cut off, is still being written, or is not an .idx file of "
    "Megatron";

// Returns number i of a list.
template <class T>
T number_at(std::span<const std::byte> list, std::uint64_t i) {
  return load_le<T>(list.data() + i * sizeof(T));
}

}  // namespace

Result<std::unique_ptr<const MegatronIndex>> MegatronIndex::open(File::Ptr file,
                                                                 Unit unit) {
  std::unique_ptr<MegatronIndex> index(
      new MegatronIndex(std::move(file), unit));
  const Status status = index->load();
  if (!status.ok()) return add_file_context(*index->file_, status);
  return std::unique_ptr<const MegatronIndex>(std::move(index));
}

Status MegatronIndex::load() {
  const std::uint64_t size = file_->size();
  if (size < kHeaderBytes) {
    return damaged("the file has ", size, " bytes, expected at least ",
                   kHeaderBytes, kHint);
  }
  std::span<const std::byte> bytes = file_->mapped();
  if (bytes.empty()) {
    if (!file_bytes_.reset(size)) return no_memory_for("its ", size, " bytes");
    TRY(file_->read(0, file_bytes_.all()));
    bytes = file_bytes_.all();
  }
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return damaged("offset 0: expected \"MMIDIDX\"", kHint);
  }
  const auto version = load_le<std::uint64_t>(bytes.data() + 9);
  if (version != 1) return damaged("offset 9: version ", found(version, 1));
  dtype_code_ = std::to_integer<int>(bytes[17]);
  if (dtype_code_ < 1 || dtype_code_ > 8) {
    return damaged("offset 17: dtype code ", dtype_code_, ", expected 1 to 8");
  }
  token_bytes_ = kTokenBytes.at(static_cast<std::size_t>(dtype_code_));
  num_sequences_ = load_le<std::uint64_t>(bytes.data() + 18);
  const auto boundaries = load_le<std::uint64_t>(bytes.data() + 26);
  const std::uint64_t left = size - kHeaderBytes;
  if (boundaries == 0 || boundaries > left / 8 || num_sequences_ > left / 12 ||
      12 * num_sequences_ + 8 * boundaries > left) {
    return damaged("the file has ", size, " bytes, expected at least ",
                   kHeaderBytes, " + 12 * ", num_sequences_,
                   " sequences + 8 * ", boundaries, " boundaries of documents",
                   kHint);
  }
  num_documents_ = boundaries - 1;
  lengths_ = bytes.subspan(kHeaderBytes, 4 * num_sequences_);
  offsets_ =
      bytes.subspan(kHeaderBytes + 4 * num_sequences_, 8 * num_sequences_);
  documents_ =
      bytes.subspan(kHeaderBytes + 12 * num_sequences_, 8 * boundaries);
  modes_ = bytes.subspan(kHeaderBytes + 12 * num_sequences_ + 8 * boundaries);
  if (!modes_.empty() && modes_.size() != num_sequences_) {
    return damaged("the file has ", modes_.size(),
                   " bytes after its documents, expected 0 or one mode for "
                   "each of ",
                   num_sequences_, " sequences", kHint);
  }
  return {};
}

MegatronIndex::Span MegatronIndex::sequence(std::uint64_t i) const {
  const auto begin = number_at<std::uint64_t>(offsets_, i);
  const auto tokens = number_at<std::uint32_t>(lengths_, i);
  return {begin, begin + tokens * token_bytes_};
}

MegatronIndex::Span MegatronIndex::at(std::uint64_t i) const {
  if (unit_ == Unit::kSequence) return sequence(i);
  const auto first = number_at<std::uint64_t>(documents_, i);
  const auto end = number_at<std::uint64_t>(documents_, i + 1);
  // If the index is damaged, return a span that SpanFile reports.
  if (first > end || end > num_sequences_) return {1, 0};
  if (first == end) return {0, 0};
  return {sequence(first).begin, sequence(end - 1).end};
}

std::uint64_t MegatronIndex::rule() const {
  const auto stamp = FileStamp::of(*file_);
  const std::array<std::uint64_t, 3> fields{
      stamp.size, stamp.version, std::uint64_t{unit_ == Unit::kDocument}};
  return HighwayHash::of(kRuleKey, std::as_bytes(std::span(fields)));
}

std::span<const std::byte> MegatronIndex::listed_lengths() const {
  const bool by_document = unit_ == Unit::kDocument;
  if (by_document && num_documents_ != num_sequences_) return {};
  // Otherwise each page of a mapped file would be loaded separately.
  const std::uint64_t documents_begin = kHeaderBytes + 12 * num_sequences_;
  file_->will_need(kHeaderBytes, lengths_.size());
  if (by_document) file_->will_need(documents_begin, documents_.size());
  for (std::uint64_t i = 0; by_document && i <= num_documents_; ++i) {
    if (number_at<std::uint64_t>(documents_, i) != i) return {};
  }
  return lengths_;
}

}  // namespace gristmill
