#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.hpp"
#include "core/example/example.hpp"

namespace gristmill {
namespace {

using ParsedFeatures = ExampleParser::ParsedFeatures;

// Returns a field with a short run of bytes.
std::string field(int number, std::string_view content) {
  return std::string{static_cast<char>(number << 3 | 2),
                     static_cast<char>(content.size())} +
         std::string(content);
}

std::string int_list(std::string_view varints) {
  return field(3, field(1, varints));
}

std::string entry(std::string_view name, std::string_view feature) {
  return field(1, field(1, name) + field(2, feature));
}

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::int64_t> ints(const ExampleParser::FeatureList& list) {
  CHECK(list.kind == ListKind::kInt64);
  std::vector<std::int64_t> out(*count_values(list.kind, list.bytes));
  CHECK(read_numbers(Number::kInt64, list.bytes,
                     std::as_writable_bytes(std::span(out)))
            .ok());
  return out;
}

using Ints = std::vector<std::int64_t>;

void test_features_are_found_by_name() {
  const ExampleParser parser({"a", "b", "none"}, false);
  const std::string record =
      field(1, entry("b", int_list("\1\2")) + entry("other", "") +
                   entry("a", int_list("\3")));
  ParsedFeatures parsed;
  CHECK(parser.find(bytes(record), parsed).ok());
  CHECK(ints(parsed.features[0]) == Ints({3}));
  CHECK(ints(parsed.features[1]) == Ints({1, 2}));
  CHECK(parsed.features[2].kind == ListKind::kNone);
  CHECK_EQ(parsed.features[1].offset, 4U);
  const ExampleParser strict({"a", "b"}, true);
  CHECK_EQ(strict.find(bytes(record), parsed).message(),
           "the record has a feature 'other', which was not requested");
}

void test_thousand_names_are_found() {
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) {
    names.push_back("feature/" + std::to_string(i) + "/value");
  }
  const ExampleParser parser(names, true);
  ParsedFeatures parsed;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string record = field(1, entry(names[i], int_list("\7")));
    CHECK(parser.find(bytes(record), parsed).ok());
    CHECK(ints(parsed.features[i]) == Ints({7}));
  }
}

// The last feature of a name counts.  Split messages are merged.
void test_repeated_fields_merge_like_protobuf() {
  const ExampleParser parser({"a"}, false);
  ParsedFeatures parsed;
  const std::string twice = field(1, entry("a", int_list("\1"))) +
                            field(1, entry("a", int_list("\2")));
  CHECK(parser.find(bytes(twice), parsed).ok());
  CHECK(ints(parsed.features[0]) == Ints({2}));
  const std::string pieces =
      field(1, field(1, field(2, int_list("\1") + int_list("\2")) +
                            field(1, "a") + field(2, int_list("\3"))));
  CHECK(parser.find(bytes(pieces), parsed).ok());
  CHECK(ints(parsed.features[0]) == Ints({1, 2, 3}));
  const std::string kinds =
      field(1, entry("a", int_list("\1") + field(1, "") + int_list("\2")));
  CHECK(parser.find(bytes(kinds), parsed).ok());
  CHECK(ints(parsed.features[0]) == Ints({2}));
}

void test_find_all_returns_features_in_order() {
  const std::string record =
      field(1, entry("b", int_list("\1")) + entry("a", int_list("\2")) +
                   entry("b", int_list("\3")) + entry("c", ""));
  std::vector<ExampleParser::NamedFeature> named;
  ParsedFeatures parsed;
  CHECK(ExampleParser::find_all(bytes(record), named, parsed).ok());
  CHECK_EQ(named.size(), 2U);
  CHECK_EQ(named[0].name, "a");
  CHECK_EQ(named[1].name, "b");
  CHECK(ints(named[1].list) == Ints({3}));
}

// Like protobuf, although the damaged values would not be returned.
void test_damage_in_replaced_feature_is_error() {
  const std::string cut = field(3, std::string{"\x0a\x05\1", 3});
  const std::string good = int_list("\1");
  const std::string no_varint = int_list(std::string(11, '\xff') + "\1");
  const std::array records{
      field(1, entry("\xff", "")),
      field(1, field(1, field(1, "\xff") + field(1, "a"))),
      field(1, entry("a", cut + field(3, "\2\3\4\5"))),
      field(1, entry("a", cut + field(1, ""))),
      field(1, entry("a", no_varint + field(1, ""))),
      field(1, entry("a", cut) + entry("a", good)),
      field(1, entry("a", good) + entry("b", cut) + entry("b", "")),
  };
  std::vector<ExampleParser::NamedFeature> named;
  ParsedFeatures parsed;
  for (const std::string& record : records) {
    CHECK(!ExampleParser::find_all(bytes(record), named, parsed).ok());
  }
  CHECK_EQ(ExampleParser::find_all(bytes(records[1]), named, parsed).message(),
           "feature '\xff' (at byte 4): its name is not UTF-8");
  const ExampleParser parser({"a"}, false);
  CHECK(!parser.find(bytes(records[5]), parsed).ok());
}

void test_block_error_has_record_position() {
  const ExampleParser parser({"a"}, false);
  const std::string good = field(1, entry("a", int_list("\5")));
  const std::string data = good + good + "x";
  const auto size = static_cast<std::int64_t>(good.size());
  const std::array<std::int64_t, 4> offsets{0, size, 2 * size, 2 * size + 1};
  Ints rows(3);
  const auto out = std::as_writable_bytes(std::span(rows));
  const std::array columns{
      ExampleParser::Column{0, Number::kInt64, out, nullptr}};
  std::size_t position = 0;
  CHECK_EQ(parser.read_block(bytes(data), offsets, columns, position).message(),
           "this is not a tf.train.Example, or only part of one: the field at "
           "byte 0 of 1 cannot be read");
  CHECK_EQ(position, 2U);
  CHECK(rows == Ints({5, 5, 0}));
}

void test_missing_feature_gets_fallback() {
  const ExampleParser parser({"a"}, false);
  const std::array<std::int64_t, 2> offsets{0, 0};
  Ints rows(1);
  const Ints fallback{9};
  const auto out = std::as_writable_bytes(std::span(rows));
  std::array columns{ExampleParser::Column{
      0, Number::kInt64, out, std::as_bytes(std::span(fallback)).data()}};
  std::size_t position = 0;
  CHECK(parser.read_block({}, offsets, columns, position).ok());
  CHECK(rows == fallback);
  columns[0].fallback = nullptr;
  CHECK(parser.read_block({}, offsets, columns, position)
            .message()
            .starts_with("feature 'a' is missing and has no default"));
}

}  // namespace
}  // namespace gristmill

int main() {
  gristmill::test_features_are_found_by_name();
  gristmill::test_thousand_names_are_found();
  gristmill::test_repeated_fields_merge_like_protobuf();
  gristmill::test_find_all_returns_features_in_order();
  gristmill::test_damage_in_replaced_feature_is_error();
  gristmill::test_block_error_has_record_position();
  gristmill::test_missing_feature_gets_fallback();
}
