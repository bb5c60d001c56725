#include "core/example/example.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/utf8.hpp"

namespace gristmill {
namespace {

using Bytes = ExampleParser::Bytes;
using FeatureList = ExampleParser::FeatureList;
using ParsedFeatures = ExampleParser::ParsedFeatures;

constexpr std::uint32_t kNoName = UINT32_MAX;
constexpr std::size_t kNameWordBytes = sizeof(std::uint64_t);

// Returns the tag of a length-delimited field; an Example has no other fields.
constexpr std::uint32_t delimited_tag(std::uint32_t field) {
  return field << 3 | 2;
}

std::uint64_t hash_of(std::string_view name) noexcept {
  std::uint64_t hash = name.size();
  for (std::size_t at = 0; at < name.size(); at += kNameWordBytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, name.data() + at,
                std::min(kNameWordBytes, name.size() - at));
    hash = (std::rotl(hash, 23) ^ word) * 0x9e3779b97f4a7c15;
  }
  return hash >> 32;
}

std::string_view text_of(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status damaged_at(Bytes record, const std::byte* at) {
  return Status(Code::kInvalidArgument,
                "this is not a tf.train.Example, or only part of one: the "
                "field at byte ",
                at - record.data(), " of ", record.size(), " cannot be read");
}

// Returns whether a message ends at the end of a field.
bool ends_at_field(Bytes message) noexcept {
  ByteCursor cursor(message);
  std::uint32_t tag = 0;
  while (cursor.left() > 0) {
    if (!cursor.varint32(tag) || !skip_field(cursor, tag)) return false;
  }
  return true;
}

// A message that may be written in pieces.  Protobuf merges them, which is the
// same as reading the pieces joined together.
class Pieces {
 public:
  explicit Pieces(ParsedFeatures& parsed) noexcept : parsed_(parsed) {}

  // Returns false if there are several pieces and one of them is cut off, so
  // that the next piece does not complete it.
  [[nodiscard]] bool add(Bytes piece) {
    if (all_.empty()) {
      all_ = piece;
      return true;
    }
    if (joined_ == nullptr) {
      if (!ends_at_field(all_)) return false;
      joined_ = &parsed_.joined.emplace_back(all_.begin(), all_.end());
    }
    joined_->insert(joined_->end(), piece.begin(), piece.end());
    all_ = *joined_;
    return ends_at_field(piece);
  }
  void clear() noexcept {
    all_ = {};
    joined_ = nullptr;
  }
  [[nodiscard]] Bytes all() const noexcept { return all_; }

 private:
  ParsedFeatures& parsed_;
  std::vector<std::byte>* joined_ = nullptr;
  Bytes all_;
};

// Calls `each(field, bytes)` for the length-delimited fields 1 to `last` of a
// message, and skips other fields.  Returns the start of a field that cannot be
// read, or for which `each` returns false; otherwise, null.
template <class Each>
const std::byte* for_each_field(Bytes message, std::uint32_t last,
                                Each&& each) {
  ByteCursor cursor(message);
  while (cursor.left() > 0) {
    const std::byte* const at = cursor.rest().data();
    std::uint32_t tag = 0;
    if (!cursor.varint32(tag)) return at;
    if ((tag & 7) != 2 || tag < delimited_tag(1) || tag > delimited_tag(last)) {
      if (!skip_field(cursor, tag)) return at;
      continue;
    }
    std::uint64_t size = 0;
    Bytes bytes;
    if (!cursor.varint(size) || !cursor.take(size, bytes)) return at;
    if (!each(tag >> 3, bytes)) return at;
  }
  return nullptr;
}

// Returns whether a list can be read.  That is required even of a list that a
// later one replaces, since protobuf reads both.
bool is_readable(const FeatureList& list) {
  if (list.kind == ListKind::kNone) return true;
  const auto count = count_values(list.kind, list.bytes);
  if (!count || list.kind != ListKind::kInt64) return count.has_value();
  std::vector<std::int64_t> values(*count);
  return read_numbers(Number::kInt64, list.bytes,
                      std::as_writable_bytes(std::span(values)))
      .ok();
}

// Sets the kind and the list of a feature from its message.
bool open_feature(Bytes feature, ParsedFeatures& parsed, FeatureList& list) {
  Pieces pieces(parsed);
  if (!is_readable(list)) return false;
  list.kind = ListKind::kNone;
  const std::byte* const bad_field =
      for_each_field(feature, 3, [&](std::uint32_t field, Bytes bytes) {
        const auto kind = static_cast<ListKind>(field);
        if (kind != list.kind) {  // The last kind counts.
          list.bytes = pieces.all();
          if (!is_readable(list)) return false;
          pieces.clear();
        }
        list.kind = kind;
        return pieces.add(bytes);
      });
  list.bytes = pieces.all();
  return bad_field == nullptr;
}

// Calls `list_for(name)` for each feature of a record.  `list_for` returns the
// FeatureList to fill in, or null to skip the feature.
//
// Before that, calls `accept_name(name, at)` for each name of the feature,
// which begins at byte `at`.  If a feature has several names, the last one
// counts. If `accept_name` returns false, the walk fails.
template <class Accept, class Place>
Status for_each_feature(Bytes record, ParsedFeatures& parsed,
                        Accept&& accept_name, Place&& list_for) {
  const auto entry = [&](Bytes message) {
    const auto at = static_cast<std::size_t>(message.data() - record.data());
    Bytes name;
    Pieces value(parsed);
    const std::byte* const bad_field =
        for_each_field(message, 2, [&](std::uint32_t field, Bytes bytes) {
          if (field != 1) return value.add(bytes);
          name = bytes;
          return accept_name(text_of(name), at);
        });
    if (bad_field != nullptr) return false;
    FeatureList* const list = list_for(text_of(name));
    if (list == nullptr) return true;
    list->offset = at;
    return open_feature(value.all(), parsed, *list);
  };
  const std::byte* bad_inner_field = nullptr;
  const std::byte* bad_field =
      for_each_field(record, 1, [&](std::uint32_t, Bytes features) {
        bad_inner_field = for_each_field(
            features, 1,
            [&](std::uint32_t, Bytes message) { return entry(message); });
        return bad_inner_field == nullptr;
      });
  if (bad_inner_field != nullptr) bad_field = bad_inner_field;
  return bad_field == nullptr ? Status() : damaged_at(record, bad_field);
}

}  // namespace

ExampleParser::ExampleParser(std::vector<std::string> names, bool refuse_others)
    : names_(std::move(names)),
      refuse_others_(refuse_others),
      table_(std::bit_ceil(2 * names_.size() + 1), kNoName) {
  const std::size_t mask = table_.size() - 1;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    std::size_t slot = hash_of(names_[i]) & mask;
    while (table_[slot] != kNoName) slot = (slot + 1) & mask;
    table_[slot] = static_cast<std::uint32_t>(i);
  }
}

// Returns the index of a name, or the number of names if it is not found.
std::size_t ExampleParser::index_of(std::string_view name) const noexcept {
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = hash_of(name) & mask;
  for (; table_[slot] != kNoName; slot = (slot + 1) & mask) {
    if (names_[table_[slot]] == name) return table_[slot];
  }
  return names_.size();
}

Status ExampleParser::find(Bytes record, ParsedFeatures& parsed) const {
  parsed.features.assign(names_.size(), FeatureList());
  parsed.joined.clear();
  std::string_view other;
  const auto accept_name = [](std::string_view, std::size_t) { return true; };
  const auto list_for = [&](std::string_view name) -> FeatureList* {
    const std::size_t index = index_of(name);
    if (index < names_.size()) return &parsed.features[index];
    if (other.data() == nullptr) other = name;
    return nullptr;
  };
  TRY(for_each_feature(record, parsed, accept_name, list_for));
  if (!refuse_others_ || other.data() == nullptr) return {};
  return Status(Code::kInvalidArgument, "the record has a feature '", other,
                "', which was not requested");
}

Status ExampleParser::find_all(Bytes record, std::vector<NamedFeature>& named,
                               ParsedFeatures& parsed) {
  named.clear();
  parsed.joined.clear();
  std::optional<Status> name_error;
  const auto accept_name = [&](std::string_view name, std::size_t at) {
    if (is_utf8(name)) return true;
    name_error = add_feature_context(
        name, FeatureList{ListKind::kNone, {}, at},
        Status(Code::kInvalidArgument, "its name is not UTF-8"));
    return false;
  };
  const auto list_for = [&](std::string_view name) {
    return &named.emplace_back(NamedFeature{name, FeatureList()}).list;
  };
  Status status = for_each_feature(record, parsed, accept_name, list_for);
  if (name_error) return *name_error;
  TRY(status);
  // The last feature of each name counts; after reversing, it comes first.
  std::ranges::reverse(named);
  std::ranges::stable_sort(named, {}, &NamedFeature::name);
  for (std::size_t i = 1; i < named.size(); ++i) {
    const auto& [name, list] = named[i];
    if (name != named[i - 1].name || is_readable(list)) continue;
    return damaged_at(record, record.data() + list.offset);
  }
  const auto repeated = std::ranges::unique(named, {}, &NamedFeature::name);
  named.erase(repeated.begin(), repeated.end());
  std::erase_if(named, [](const NamedFeature& feature) {
    return feature.list.kind == ListKind::kNone;
  });
  return status;
}

Status ExampleParser::check(std::size_t feature, const FeatureList& list,
                            ListKind expected) const {
  if (list.kind == expected) return {};
  const std::string& name = names_[feature];
  if (list.kind == ListKind::kNone) {
    return Status(Code::kInvalidArgument, "feature '", name,
                  "' is missing and has no default. Set a default, or use "
                  "VarLen, which returns an empty array");
  }
  return add_feature_context(
      name, list,
      Status(Code::kInvalidArgument, "it has a list of ", name_of(list.kind),
             " values, expected ", name_of(expected), " values"));
}

Status ExampleParser::read(std::size_t feature, const FeatureList& list,
                           Number number, std::span<std::byte> to) const {
  TRY(check(feature, list, list_of(number)));
  const Status status = read_numbers(number, list.bytes, to);
  return status.ok() ? status
                     : add_feature_context(names_[feature], list, status);
}

Status ExampleParser::read_block(Bytes data,
                                 std::span<const std::int64_t> offsets,
                                 std::span<const Column> columns,
                                 std::size_t& position) const {
  ParsedFeatures parsed;
  const std::size_t records = offsets.size() - 1;
  for (position = 0; position < records; ++position) {
    const auto begin = static_cast<std::size_t>(offsets[position]);
    const auto end = static_cast<std::size_t>(offsets[position + 1]);
    TRY(find(data.subspan(begin, end - begin), parsed));
    for (const Column& column : columns) {
      const std::size_t size = column.rows.size() / records;
      const auto row = column.rows.subspan(position * size, size);
      const FeatureList& list = parsed.features[column.feature];
      if (list.kind == ListKind::kNone && column.fallback != nullptr) {
        if (size > 0) std::memcpy(row.data(), column.fallback, size);
        continue;
      }
      TRY(read(column.feature, list, column.number, row));
    }
  }
  return {};
}

Status add_feature_context(std::string_view name, const FeatureList& list,
                           const Status& status) {
  return Status(status.code(), "feature '", name, "' (at byte ", list.offset,
                "): ", status.message());
}

}  // namespace gristmill
