// Lengths of both widths have the same totals, aligned or not.
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/tokens/document_lengths.hpp"

using gristmill::Code;
using gristmill::DocumentLengths;
using gristmill::total_lengths;

namespace {

template <class Number>
DocumentLengths view(const std::vector<Number>& numbers) {
  return {std::as_bytes(std::span(numbers)), sizeof(Number)};
}

gristmill::Status status_of(std::vector<std::int64_t> lengths) {
  return total_lengths(view(lengths), 10).status();
}

void test_totals_of_both_widths_are_equal() {
  std::vector<std::int32_t> narrow;
  std::vector<std::int64_t> wide;
  for (std::int32_t i = 0; i < 5000; ++i) {
    narrow.push_back(i % 21);
    wide.push_back(i % 21);
  }
  const auto of_narrow = total_lengths(view(narrow), 10).take();
  const auto of_wide = total_lengths(view(wide), 10).take();
  CHECK_EQ(of_narrow.longest, 20);
  CHECK_EQ(of_wide.longest, 20);
  CHECK_EQ(of_wide.documents, 5000);
  CHECK_EQ(of_wide.tokens, of_narrow.tokens);
  CHECK_EQ(of_wide.empty_documents, 239);
  CHECK_EQ(of_wide.long_documents, of_narrow.long_documents);
  std::int64_t long_tokens = 0;
  std::int64_t long_documents = 0;
  for (const auto length : wide) {
    if (length > 10) long_tokens += length;
    if (length > 10) ++long_documents;
  }
  CHECK_EQ(of_wide.long_tokens, long_tokens);
  CHECK_EQ(of_wide.long_documents, long_documents);
}

void test_unaligned_lengths_are_read() {
  const std::vector<std::int32_t> numbers{7, 8, 9};
  std::vector<std::byte> bytes(14);
  std::memcpy(bytes.data() + 2, numbers.data(), 12);
  const std::span<const std::byte> all(bytes);
  const DocumentLengths lengths(all.subspan(2), 4);
  std::vector<std::int64_t> documents{2, 0, 1};
  lengths.gather(documents);
  CHECK(documents == std::vector<std::int64_t>({9, 7, 8}));
  CHECK_EQ(total_lengths(lengths, 10).value().hash,
           total_lengths(view(numbers), 10).value().hash);
}

void test_hash_depends_on_order() {
  const std::vector<std::int32_t> left{1, 2};
  const std::vector<std::int32_t> right{2, 1};
  CHECK(total_lengths(view(left), 1).value().hash !=
        total_lengths(view(right), 1).value().hash);
}

void test_bad_lengths_are_errors() {
  CHECK_EQ(status_of({3, -1}).message(),
           "lengths must be at least 0, got -1 for document 1");
  CHECK(status_of({std::numeric_limits<std::int64_t>::min()}).code() ==
        Code::kInvalidArgument);
  CHECK_EQ(status_of({1, std::int64_t{1} << 51}).message(),
           "lengths must be less than 2**51, got 2251799813685248 for "
           "document 1");
  const std::vector<std::int64_t> many(2100, (std::int64_t{1} << 51) - 1);
  CHECK(status_of(many).code() == Code::kOverflow);
  std::vector<std::int64_t> late(10000, 1);
  late[9000] = -5;
  CHECK_EQ(status_of(late).message(),
           "lengths must be at least 0, got -5 for document 9000");
  // The sum of unchecked lengths overflows.
  std::vector<std::int64_t> huge(2048, std::int64_t{1} << 50);
  huge.push_back(std::numeric_limits<std::int64_t>::max());
  CHECK_EQ(status_of(huge).message(),
           "lengths must be less than 2**51, got 9223372036854775807 for "
           "document 2048");
  CHECK(status_of({}).ok());
}

}  // namespace

int main() {
  test_totals_of_both_widths_are_equal();
  test_unaligned_lengths_are_read();
  test_hash_depends_on_order();
  test_bad_lengths_are_errors();
}
