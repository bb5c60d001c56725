#include "core/tokens/token_rows.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/files/verify.hpp"
#include "core/tokens/row_starts.hpp"

namespace gristmill {
namespace {

constexpr std::int64_t kMaxNarrow = std::numeric_limits<std::int32_t>::max();

std::size_t size_of(const DocumentLengths& lengths) {
  return static_cast<std::size_t>(lengths.size());
}

// Returns true if positions or offsets need 64 bits.
bool needs_wide(std::size_t positions, std::int64_t longest) {
  return positions > kMaxNarrow || longest > kMaxNarrow;
}

std::uint64_t start_bytes(bool is_wide) {
  return is_wide ? sizeof(RowStart<std::uint64_t>)
                 : sizeof(RowStart<std::uint32_t>);
}

std::span<std::uint32_t> words_in(std::span<std::byte> bytes) {
  return {reinterpret_cast<std::uint32_t*>(bytes.data()), bytes.size() / 4};
}

}  // namespace

TokenRows::TokenRows(DocumentLengths lengths, std::shared_ptr<const void> owner,
                     ArrayFile arrays, std::size_t rows, std::int64_t tokens,
                     bool is_wide)
    : lengths_(lengths),
      owner_(std::move(owner)),
      arrays_(std::move(arrays)),
      rows_(rows),
      tokens_(tokens),
      is_wide_(is_wide) {}

Result<TokenRows> TokenRows::chunked(const DocumentLengths& lengths,
                                     std::shared_ptr<const void> owner,
                                     std::int64_t longest,
                                     const ChunkRule& rule,
                                     const ArrayFile::Place& place) {
  const bool is_wide = needs_wide(size_of(lengths), longest);
  std::size_t rows = 0;
  std::size_t documents = 0;
  for (const auto& part : rule.parts) {
    rows += part.rows;
    documents += part.documents;
  }
  assert(documents == size_of(lengths));
  ArrayFile arrays = TRY(ArrayFile::load_or_build(
      place, {0, rows * start_bytes(is_wide), 0, 0}, [&](const auto& to) {
        return build_chunked(lengths, rule, is_wide, {{}, to[1], {}});
      }));
  return TokenRows(lengths, std::move(owner), std::move(arrays), rows,
                   rule.row_tokens, is_wide);
}

Result<TokenRows> TokenRows::shuffled(const DocumentLengths& lengths,
                                      std::shared_ptr<const void> owner,
                                      std::int64_t longest,
                                      const ShuffleRule& rule,
                                      const ArrayFile::Place& place) {
  const std::size_t documents = size_of(lengths);
  const std::size_t positions = documents * rule.epochs;
  const bool is_wide = needs_wide(positions, longest);
  ArrayFile arrays = TRY(ArrayFile::load_or_build(
      place,
      {4 * positions, rule.rows * start_bytes(is_wide), 4 * rule.rows, 0},
      [&](const auto& to) {
        return build_shuffled(lengths, rule, is_wide,
                              {words_in(to[0]), to[1], words_in(to[2])});
      }));
  return TokenRows(lengths, std::move(owner), std::move(arrays), rule.rows,
                   rule.row_tokens + (rule.has_extra_token ? 1 : 0), is_wide);
}

template <class Length, class Word>
Status TokenRows::add_row(std::span<const Length> lengths, std::int64_t key,
                          RowSpans& to) const {
  const auto words = [&](std::size_t i) {
    const auto bytes = arrays_.array(i);
    return std::span(reinterpret_cast<const std::uint32_t*>(bytes.data()),
                     bytes.size() / 4);
  };
  const auto documents = words(0);
  const auto order = words(2);
  const auto* const starts =
      reinterpret_cast<const RowStart<Word>*>(arrays_.array(1).data());
  const std::size_t row = order.empty() ? static_cast<std::size_t>(key)
                                        : order[static_cast<std::size_t>(key)];
  if (row >= rows_) return damaged(path(), ": the index of rows is damaged");
  std::uint64_t position = starts[row].position;
  std::int64_t begin = static_cast<std::int64_t>(starts[row].offset);
  const std::uint64_t end =
      documents.empty() ? lengths.size() : documents.size();
  std::int64_t left = tokens_;
  for (; left > 0 && position < end; ++position, begin = 0) {
    const std::uint64_t document =
        documents.empty() ? position : documents[position];
    if (document >= lengths.size() || begin < 0) {
      return damaged(path(), ": the index of rows is damaged");
    }
    const std::int64_t length = lengths[document];
    const std::int64_t count = std::min(left, length - begin);
    if (count <= 0) continue;
    to.documents.push_back(static_cast<std::int64_t>(document));
    to.begins.push_back(begin);
    to.ends.push_back(begin + count);
    left -= count;
  }
  to.offsets.push_back(static_cast<std::int64_t>(to.documents.size()));
  return {};
}

Result<RowSpans> TokenRows::spans(std::span<const std::int64_t> keys) const {
  RowSpans spans;
  spans.offsets.push_back(0);
  const Status status = lengths_.visit([&](const auto& lengths) -> Status {
    using Length = typename std::decay_t<decltype(lengths)>::value_type;
    for (const std::int64_t key : keys) {
      TRY(is_wide_ ? add_row<Length, std::uint64_t>(lengths, key, spans)
                   : add_row<Length, std::uint32_t>(lengths, key, spans));
    }
    return {};
  });
  TRY(status);
  return spans;
}

}  // namespace gristmill
