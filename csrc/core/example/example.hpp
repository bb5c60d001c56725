// An ExampleParser finds the features of serialized tf.train.Examples and reads
// numbers from them.  Its only schema is a list of names.
//
// It reads an Example like protobuf.  Repeated messages are merged, except that
// the last feature of a name replaces the ones before it.  Unknown fields are
// skipped.
//
// Thread safety: const methods may overlap; ParsedFeatures belong to one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.hpp"
#include "core/example/value_list.hpp"

namespace gristmill {

class ExampleParser {
 public:
  using Bytes = std::span<const std::byte>;

  // The values of one feature of a record.  The kind is kNone if the feature
  // is missing or has no list.
  struct FeatureList {
    ListKind kind = ListKind::kNone;
    Bytes bytes;  // The list message, in the record or in the ParsedFeatures.
    std::size_t offset = 0;  // The offset of the feature in the record.
  };

  // The features found in a record, valid until the next search.  REQUIRES: the
  // record is valid for as long.
  struct ParsedFeatures {
    // One for each of the parser's names, set by find() but not by find_all().
    std::vector<FeatureList> features;
    std::list<std::vector<std::byte>> joined;  // Messages joined from pieces.
  };

  struct NamedFeature {
    std::string_view name;  // A view into the record.
    FeatureList list;
  };

  // The destination of a feature with a fixed number of values, for a block of
  // records.
  struct Column {
    std::size_t feature = 0;
    Number number = Number::kInt64;
    std::span<std::byte> rows;  // One row per record, aligned for `number`.
    // The row for records without the feature; null if they are an error.
    const std::byte* fallback = nullptr;
  };

  // `names` are the names of the features to find, without duplicates.  If
  // `refuse_others` is true, a record with another feature is an error.
  ExampleParser(std::vector<std::string> names, bool refuse_others);

  [[nodiscard]] const std::vector<std::string>& names() const noexcept {
    return names_;
  }

  // Finds the features of a record.  Does not read their lists, which
  // may be damaged.
  Status find(Bytes record, ParsedFeatures& parsed) const;

  // Finds all features of a record that have a list, sorted by name.
  // Fails if any name is not UTF-8, even the name of a feature without a list.
  static Status find_all(Bytes record, std::vector<NamedFeature>& named,
                         ParsedFeatures& parsed);

  // Fills `to` with the numbers of a feature, like read_numbers().
  Status read(std::size_t feature, const FeatureList& list, Number number,
              std::span<std::byte> to) const;

  // Reads the columns of all records; record k is the bytes [offsets[k],
  // offsets[k + 1]) of `data`.  If it fails, `position` is the bad record.
  // REQUIRES: offsets ascend, and do not exceed the size of `data`.
  Status read_block(Bytes data, std::span<const std::int64_t> offsets,
                    std::span<const Column> columns,
                    std::size_t& position) const;

  // Fails unless a feature is present and has a list of the kind `expected`.
  Status check(std::size_t feature, const FeatureList& list,
               ListKind expected) const;

 private:
  [[nodiscard]] std::size_t index_of(std::string_view name) const noexcept;

  const std::vector<std::string> names_;
  const bool refuse_others_;
  // A hash table of indices into names_.  Its size is a power of two, and more
  // than half of it is empty.
  std::vector<std::uint32_t> table_;
};

// Returns `status` with its feature named: "feature 'x' (at byte 3): ...".
Status add_feature_context(std::string_view name,
                           const ExampleParser::FeatureList& list,
                           const Status& status);

}  // namespace gristmill
