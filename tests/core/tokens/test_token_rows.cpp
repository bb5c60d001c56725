#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/check.hpp"
#include "core/tokens/token_rows.hpp"

namespace gristmill {
namespace {

const ArrayFile::Place kNowhere{1, {}, ""};

template <class Integer>
DocumentLengths view(const std::vector<Integer>& lengths) {
  return {std::as_bytes(std::span(lengths)), sizeof(Integer)};
}

std::vector<std::int64_t> keys_of(const TokenRows& rows) {
  std::vector<std::int64_t> keys(rows.size());
  std::iota(keys.begin(), keys.end(), 0);
  return keys;
}

// Returns a number for each token of each row: those of document d begin with
// 1000 d.
std::vector<std::vector<std::int64_t>> tokens_of(const TokenRows& rows) {
  const RowSpans spans = rows.spans(keys_of(rows)).value();
  std::vector<std::vector<std::int64_t>> all(rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto end = static_cast<std::size_t>(spans.offsets[row + 1]);
    for (auto i = static_cast<std::size_t>(spans.offsets[row]); i < end; ++i) {
      CHECK(spans.begins[i] < spans.ends[i]);
      for (auto token = spans.begins[i]; token < spans.ends[i]; ++token) {
        all[row].push_back(1000 * spans.documents[i] + token);
      }
    }
  }
  return all;
}

std::vector<std::uint32_t> words_of(const TokenRows& rows, std::size_t i) {
  const auto bytes = rows.array(i);
  const auto* const words =
      reinterpret_cast<const std::uint32_t*>(bytes.data());
  return {words, words + bytes.size() / 4};
}

template <class Integer>
void test_shuffled_rows_are_cut_from_the_order(std::size_t documents,
                                               std::size_t epochs,
                                               std::size_t first_epochs,
                                               bool has_extra_token,
                                               std::int64_t longest = 15) {
  std::vector<Integer> lengths(documents);
  std::uint64_t state = documents + 7 * epochs;
  for (auto& length : lengths) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    length = static_cast<Integer>(state >> 60U);
  }
  const auto tokens = total_lengths(view(lengths), 15).value().tokens;
  ShuffleRule rule{.seed = 3,
                   .row_tokens = 7,
                   .has_extra_token = has_extra_token,
                   .epochs = epochs,
                   .first_epochs = first_epochs,
                   .tokens = tokens};
  const std::int64_t extra = has_extra_token ? 1 : 0;
  const auto used = tokens * static_cast<std::int64_t>(epochs) - extra;
  rule.rows = static_cast<std::size_t>(std::max<std::int64_t>(used, 0) / 7);
  rule.first_rows = rule.rows / 2;
  const TokenRows rows =
      TokenRows::shuffled(view(lengths), nullptr, longest, rule, kNowhere)
          .value();
  std::vector<std::int64_t> all;
  for (const std::uint32_t document : words_of(rows, 0)) {
    for (std::int64_t i = 0; i < lengths[document]; ++i) {
      all.push_back(1000 * document + i);
    }
  }
  const auto order = words_of(rows, 2);
  const auto found = tokens_of(rows);
  CHECK_EQ(found.size(), rule.rows);
  for (std::size_t key = 0; key < found.size(); ++key) {
    const auto begin = all.begin() + 7 * std::ptrdiff_t{order[key]};
    CHECK(found[key] == std::vector<std::int64_t>(begin, begin + 7 + extra));
  }
}

void test_rows_beyond_the_tokens_are_short() {
  const std::vector<std::int32_t> lengths{3, 2};
  const ShuffleRule rule{.row_tokens = 2,
                         .has_extra_token = true,
                         .epochs = 1,
                         .first_epochs = 1,
                         .rows = 4,
                         .tokens = 5};
  const auto found = tokens_of(
      TokenRows::shuffled(view(lengths), nullptr, 3, rule, kNowhere).value());
  std::vector<std::size_t> sizes;
  for (const auto& row : found) sizes.push_back(row.size());
  std::sort(sizes.begin(), sizes.end());
  CHECK((sizes == std::vector<std::size_t>{1, 1, 3, 3}));
}

void test_chunked_rows_start_anew_in_each_part() {
  const std::vector<std::int64_t> lengths{3, 0, 2, 4, 0};
  const ChunkRule rule{2, {{3, 2}, {0, 0}, {2, 2}}};
  const auto found = tokens_of(
      TokenRows::chunked(view(lengths), nullptr, 4, rule, kNowhere).value());
  const std::vector<std::vector<std::int64_t>> expected{
      {0, 1}, {2, 2000}, {3000, 3001}, {3002, 3003}};
  CHECK(found == expected);
}

void test_wrong_number_of_tokens_is_an_error() {
  const std::vector<std::int32_t> lengths{3, 2};
  const ChunkRule chunks{2, {{2, 4}}};
  CHECK(!TokenRows::chunked(view(lengths), nullptr, 3, chunks, kNowhere).ok());
  for (const std::int64_t tokens : {0, 4, 6, 1000}) {
    const ShuffleRule rule{.row_tokens = 2,
                           .epochs = 1,
                           .first_epochs = 1,
                           .rows = 2,
                           .tokens = tokens};
    CHECK(!TokenRows::shuffled(view(lengths), nullptr, 3, rule, kNowhere).ok());
  }
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  for (const std::size_t documents : {1, 5, 200, 5000}) {
    for (const bool extra : {false, true}) {
      test_shuffled_rows_are_cut_from_the_order<std::int32_t>(documents, 1, 1,
                                                              extra);
      test_shuffled_rows_are_cut_from_the_order<std::int64_t>(documents, 3, 3,
                                                              extra);
      test_shuffled_rows_are_cut_from_the_order<std::int32_t>(documents, 4, 3,
                                                              extra);
    }
  }
  // Lengths of 64 bits; copies of the lengths that are large enough to be
  // mapped.
  const std::int64_t wide = std::int64_t{1} << 31;
  test_shuffled_rows_are_cut_from_the_order<std::int32_t>(200, 2, 1, true,
                                                          wide);
  test_shuffled_rows_are_cut_from_the_order<std::int64_t>(140'000, 2, 1, true,
                                                          wide);
  test_rows_beyond_the_tokens_are_short();
  test_chunked_rows_start_anew_in_each_part();
  test_wrong_number_of_tokens_is_an_error();
}
