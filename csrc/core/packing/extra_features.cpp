#include "core/packing/extra_features.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "core/base/highway_hash.hpp"

namespace gristmill {
namespace {

// The key of the hash of the lengths of several features.
constexpr HighwayHash::Key kFeaturesKey{0x31746165666c, 0, 0, 0};  // "lfeat1"

constexpr std::size_t kReadDocuments = 1024;

// Calls visit(first, lengths) for blocks of documents.
template <class Visit>
Status for_each_block(const DocumentLengths& lengths, Visit visit) {
  std::array<std::int64_t, kReadDocuments> numbers;
  for (std::int64_t first = 0; first < lengths.size();) {
    const auto size =
        std::min<std::int64_t>(lengths.size() - first, kReadDocuments);
    const auto block = std::span(numbers).first(static_cast<std::size_t>(size));
    lengths.copy(first, block);
    TRY(visit(first, std::span<const std::int64_t>(block)));
    first += size;
  }
  return {};
}

}  // namespace

Result<LengthTotals> total_features(const DocumentLengths& lengths,
                                    std::int64_t capacity,
                                    std::span<const ExtraFeature> extras) {
  LengthTotals totals = TRY(total_lengths(lengths, capacity));
  if (extras.empty()) return totals;
  std::vector<std::uint64_t> hashes{totals.hash};
  for (const auto& extra : extras) {
    if (extra.lengths.size() != lengths.size()) {
      return Status(Code::kInvalidArgument, extra.name, " must have ",
                    lengths.size(), " lengths, one for each document, got ",
                    extra.lengths.size());
    }
    auto found = total_lengths(extra.lengths, extra.capacity);
    if (!found.ok()) {
      return Status(found.status().code(), extra.name, ": ",
                    found.status().message());
    }
    hashes.push_back(found.value().hash);
  }
  totals.empty_documents = totals.long_documents = totals.long_tokens = 0;
  std::array<std::int64_t, kReadDocuments> numbers;
  TRY(for_each_block(
      lengths,
      [&](std::int64_t first, std::span<const std::int64_t> block) -> Status {
        std::array<bool, kReadDocuments> is_long;
        std::array<bool, kReadDocuments> is_empty;
        for (std::size_t i = 0; i < block.size(); ++i) {
          is_long[i] = block[i] > capacity;
          is_empty[i] = block[i] == 0;
        }
        const auto cells = std::span(numbers).first(block.size());
        for (const auto& extra : extras) {
          extra.lengths.copy(first, cells);
          for (std::size_t i = 0; i < cells.size(); ++i) {
            is_long[i] |= cells[i] > extra.capacity;
            is_empty[i] &= cells[i] == 0;
          }
        }
        for (std::size_t i = 0; i < block.size(); ++i) {
          totals.empty_documents += is_empty[i];
          totals.long_documents += is_long[i];
          totals.long_tokens += is_long[i] ? block[i] : 0;
        }
        return {};
      }));
  totals.hash = HighwayHash::of(kFeaturesKey, std::as_bytes(std::span(hashes)));
  return totals;
}

Status too_long_error(const ExtraFeature& extra, std::int64_t document,
                      std::int64_t length) {
  return {Code::kInvalidArgument,
          extra.name,
          " of document ",
          document,
          " must have at most ",
          extra.capacity,
          " cells, because only the first feature is cut, got ",
          length,
          ". Use longer rows of ",
          extra.name,
          R"(, shorten the document, or pass long_documents="drop")"};
}

Status check_extras_fit(std::span<const ExtraFeature> extras) {
  for (const auto& extra : extras) {
    TRY(for_each_block(
        extra.lengths,
        [&](std::int64_t first, std::span<const std::int64_t> block) -> Status {
          for (const auto length : block) {
            if (length > extra.capacity) {
              return too_long_error(extra, first, length);
            }
            ++first;
          }
          return {};
        }));
  }
  return {};
}

}  // namespace gristmill
