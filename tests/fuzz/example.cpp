// Parses what may be a tf.train.Example, in every way there is: by a list of
// names, with and without others, as blocks, and with names that are unknown.
#include "core/example/example.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

namespace gristmill {
namespace {

constexpr std::array kNumbers{
    Number::kBool,   Number::kInt8,    Number::kInt16,   Number::kInt32,
    Number::kInt64,  Number::kUint8,   Number::kUint16,  Number::kUint32,
    Number::kUint64, Number::kFloat16, Number::kFloat32, Number::kFloat64,
};

// The names in the corpus, and one that is in no record.
const std::vector<std::string>& names() {
  static const std::vector<std::string> names{
      "label", "x", "tokens", "name", "parts", "lengths", "no such feature"};
  return names;
}

// Counts the values, and reads them as everything that they may become, to
// memory of exactly their size.
void read_values(const ExampleParser::FeatureList& list) {
  if (list.kind == ListKind::kNone) return;
  const auto count = count_values(list.kind, list.bytes);
  if (list.kind == ListKind::kBytes) {
    std::vector<std::span<const std::byte>> values;
    const bool read = read_strings(list.bytes, values).ok();
    if (read != count.has_value() || (read && values.size() != *count)) abort();
    std::size_t total = 0;
    for (const auto value : values) total += value.size();
    if (total > list.bytes.size()) abort();
    return;
  }
  if (!count) return;
  if (*count > list.bytes.size()) abort();
  for (const Number number : kNumbers) {
    if (list_of(number) != list.kind) continue;
    std::vector<std::byte> to(*count * bytes_of(number));
    static_cast<void>(read_numbers(number, list.bytes, to).ok());
    if (to.empty()) continue;
    to.resize(to.size() - bytes_of(number));
    if (read_numbers(number, list.bytes, to).ok()) abort();
  }
}

void find_features(ExampleParser::Bytes record) {
  static const ExampleParser lenient(names(), false);
  static const ExampleParser strict(names(), true);
  ExampleParser::ParsedFeatures parsed;
  static_cast<void>(strict.find(record, parsed).ok());
  if (lenient.find(record, parsed).ok()) {
    for (const auto& list : parsed.features) read_values(list);
  }
  std::vector<ExampleParser::NamedFeature> named;
  if (ExampleParser::find_all(record, named, parsed).ok()) {
    for (const auto& [name, list] : named) read_values(list);
  }
}

// Reads the input as a block of two records.
void read_block(ExampleParser::Bytes data) {
  static const ExampleParser parser(names(), false);
  const auto size = static_cast<std::int64_t>(data.size());
  const std::array<std::int64_t, 3> offsets{0, size / 2, size};
  std::vector<std::int64_t> labels(2);
  std::vector<float> xs(2 * 3);
  const std::array<float, 3> fallback{};
  const std::array columns{
      ExampleParser::Column{0, Number::kInt64,
                            std::as_writable_bytes(std::span(labels)), nullptr},
      ExampleParser::Column{1, Number::kFloat32,
                            std::as_writable_bytes(std::span(xs)),
                            std::as_bytes(std::span(fallback)).data()}};
  std::size_t position = 0;
  if (!parser.read_block(data, offsets, columns, position).ok() &&
      position > 1) {
    abort();
  }
}

}  // namespace
}  // namespace gristmill

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  // A copy of exactly that size, so that reading past the end is seen.
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> record(bytes, bytes + size);
  gristmill::find_features(record);
  gristmill::read_block(record);
  return 0;
}
