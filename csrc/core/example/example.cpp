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
using Found = ExampleParser::Found;
using Finds = ExampleParser::Finds;

constexpr std::uint32_t kNoName = UINT32_MAX;
constexpr std::size_t kNameWord = sizeof(std::uint64_t);

// Returns the tag of a length-delimited field; an Example has no other fields.
constexpr std::uint32_t delimited(std::uint32_t field) {
  return field << 3 | 2;
}

std::uint64_t hash_of(std::string_view name) noexcept {
  std::uint64_t hash = name.size();
  for (std::size_t at = 0; at < name.size(); at += kNameWord) {
    std::uint64_t word = 0;
    std::memcpy(&word, name.data() + at, std::min(kNameWord, name.size() - at));
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
bool is_whole(Bytes message) noexcept {
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
  explicit Pieces(Finds& finds) noexcept : finds_(finds) {}

  // Returns false if there are several pieces and one of them is cut off, so
  // that the next piece does not complete it.
  [[nodiscard]] bool add(Bytes piece) {
    if (all_.empty()) {
      all_ = piece;
      return true;
    }
    if (joined_ == nullptr) {
      if (!is_whole(all_)) return false;
      joined_ = &finds_.joined.emplace_back(all_.begin(), all_.end());
    }
    joined_->insert(joined_->end(), piece.begin(), piece.end());
    all_ = *joined_;
    return is_whole(piece);
  }
  void clear() noexcept {
    all_ = {};
    joined_ = nullptr;
  }
  [[nodiscard]] Bytes all() const noexcept { return all_; }

 private:
  Finds& finds_;
  std::vector<std::byte>* joined_ = nullptr;
  Bytes all_;
};

// Calls `each(field, bytes)` for the length-delimited fields 1 to `last` of a
// message, and skips other fields.  Returns the start of a field that cannot be
// read, or for which `each` returns false; otherwise, null.
template <class Each>
const std::byte* walk(Bytes message, std::uint32_t last, Each&& each) {
  ByteCursor cursor(message);
  while (cursor.left() > 0) {
    const std::byte* const at = cursor.rest().data();
    std::uint32_t tag = 0;
    if (!cursor.varint32(tag)) return at;
    if ((tag & 7) != 2 || tag < delimited(1) || tag > delimited(last)) {
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
bool can_be_read(const Found& found) {
  if (found.kind == ListKind::kNone) return true;
  const auto count = count_values(found.kind, found.list);
  if (!count || found.kind != ListKind::kInt64) return count.has_value();
  std::vector<std::int64_t> values(*count);
  return read_numbers(Number::kInt64, found.list,
                      std::as_writable_bytes(std::span(values)))
      .ok();
}

// Sets the kind and the list of a feature from its message.
bool open_feature(Bytes feature, Finds& finds, Found& found) {
  Pieces list(finds);
  if (!can_be_read(found)) return false;
  found.kind = ListKind::kNone;
  const std::byte* const bad =
      walk(feature, 3, [&](std::uint32_t field, Bytes bytes) {
        const auto kind = static_cast<ListKind>(field);
        if (kind != found.kind) {  // The last kind counts.
          found.list = list.all();
          if (!can_be_read(found)) return false;
          list.clear();
        }
        found.kind = kind;
        return list.add(bytes);
      });
  found.list = list.all();
  return bad == nullptr;
}

// Calls `place(name)` for each feature of a record.  `place` returns the Found
// to fill in, or null to skip the feature.
//
// Before that, calls `accept(name, at)` for each name of the feature, which
// begins at byte `at`.  If a feature has several names, the last one counts.
// If `accept` returns false, the walk fails.
template <class Accept, class Place>
Status walk_features(Bytes record, Finds& finds, Accept&& accept,
                     Place&& place) {
  const auto entry = [&](Bytes message) {
    const auto at = static_cast<std::size_t>(message.data() - record.data());
    Bytes name;
    Pieces value(finds);
    const std::byte* const bad =
        walk(message, 2, [&](std::uint32_t field, Bytes bytes) {
          if (field != 1) return value.add(bytes);
          name = bytes;
          return accept(text_of(name), at);
        });
    if (bad != nullptr) return false;
    Found* const found = place(text_of(name));
    if (found == nullptr) return true;
    found->at = at;
    return open_feature(value.all(), finds, *found);
  };
  const std::byte* deeper = nullptr;
  const std::byte* bad = walk(record, 1, [&](std::uint32_t, Bytes features) {
    deeper = walk(features, 1,
                  [&](std::uint32_t, Bytes message) { return entry(message); });
    return deeper == nullptr;
  });
  if (deeper != nullptr) bad = deeper;
  return bad == nullptr ? Status() : damaged_at(record, bad);
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

Status ExampleParser::find(Bytes record, Finds& finds) const {
  finds.features.assign(names_.size(), Found());
  finds.joined.clear();
  std::string_view other;
  const auto accept = [](std::string_view, std::size_t) { return true; };
  const auto place = [&](std::string_view name) -> Found* {
    const std::size_t index = index_of(name);
    if (index < names_.size()) return &finds.features[index];
    if (other.data() == nullptr) other = name;
    return nullptr;
  };
  TRY(walk_features(record, finds, accept, place));
  if (!refuse_others_ || other.data() == nullptr) return {};
  return Status(Code::kInvalidArgument, "the record has a feature '", other,
                "', which was not requested");
}

Status ExampleParser::find_all(Bytes record, std::vector<Named>& named,
                               Finds& finds) {
  named.clear();
  finds.joined.clear();
  std::optional<Status> misnamed;
  const auto accept = [&](std::string_view name, std::size_t at) {
    if (is_utf8(name)) return true;
    misnamed = about(name, Found{ListKind::kNone, {}, at},
                     Status(Code::kInvalidArgument, "its name is not UTF-8"));
    return false;
  };
  const auto place = [&](std::string_view name) {
    return &named.emplace_back(Named{name, Found()}).found;
  };
  Status status = walk_features(record, finds, accept, place);
  if (misnamed) return *misnamed;
  TRY(status);
  // The last feature of each name counts; after reversing, it comes first.
  std::ranges::reverse(named);
  std::ranges::stable_sort(named, {}, &Named::name);
  for (std::size_t i = 1; i < named.size(); ++i) {
    const auto& [name, found] = named[i];
    if (name != named[i - 1].name || can_be_read(found)) continue;
    return damaged_at(record, record.data() + found.at);
  }
  const auto repeated = std::ranges::unique(named, {}, &Named::name);
  named.erase(repeated.begin(), repeated.end());
  std::erase_if(named, [](const Named& feature) {
    return feature.found.kind == ListKind::kNone;
  });
  return status;
}

Status ExampleParser::check(std::size_t feature, const Found& found,
                            ListKind wanted) const {
  if (found.kind == wanted) return {};
  const std::string& name = names_[feature];
  if (found.kind == ListKind::kNone) {
    return Status(Code::kInvalidArgument, "feature '", name,
                  "' is missing and has no default. Set a default, or use "
                  "VarLen, which returns an empty array");
  }
  return about(
      name, found,
      Status(Code::kInvalidArgument, "it has a list of ", name_of(found.kind),
             " values, expected ", name_of(wanted), " values"));
}

Status ExampleParser::read(std::size_t feature, const Found& found,
                           Number number, std::span<std::byte> to) const {
  TRY(check(feature, found, list_of(number)));
  const Status status = read_numbers(number, found.list, to);
  return status.ok() ? status : about(names_[feature], found, status);
}

Status ExampleParser::read_block(Bytes data,
                                 std::span<const std::int64_t> offsets,
                                 std::span<const Column> columns,
                                 std::size_t& position) const {
  Finds finds;
  const std::size_t records = offsets.size() - 1;
  for (position = 0; position < records; ++position) {
    const auto begin = static_cast<std::size_t>(offsets[position]);
    const auto end = static_cast<std::size_t>(offsets[position + 1]);
    TRY(find(data.subspan(begin, end - begin), finds));
    for (const Column& column : columns) {
      const std::size_t size = column.rows.size() / records;
      const auto row = column.rows.subspan(position * size, size);
      const Found& found = finds.features[column.feature];
      if (found.kind == ListKind::kNone && column.fallback != nullptr) {
        if (size > 0) std::memcpy(row.data(), column.fallback, size);
        continue;
      }
      TRY(read(column.feature, found, column.number, row));
    }
  }
  return {};
}

Status about(std::string_view name, const Found& found, const Status& status) {
  return Status(status.code(), "feature '", name, "' (at byte ", found.at,
                "): ", status.message());
}

}  // namespace gristmill
