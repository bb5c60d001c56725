// An ExampleParser finds the features of serialized tf.train.Examples, and
// reads numbers from them, with no schema but a list of names.
//
// An Example is read as protobuf reads it: what is written twice is merged,
// except that the last feature of a name replaces those before it; fields that
// no Example has are passed over.
//
// Thread safety: const methods may overlap; Finds belong to one thread.
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

  // The values of one feature of a record.  A feature that is not there, or
  // is there without a list, is of kind kNone.
  struct Found {
    ListKind kind = ListKind::kNone;
    Bytes list;          // In the record, or in the Finds.
    std::size_t at = 0;  // Where in the record the feature begins.
  };

  // What was found in a record, until the next is searched.  REQUIRES: the
  // record stays where it is for as long.
  struct Finds {
    std::vector<Found> features;  // One for each of the parser's names.
    std::list<std::vector<std::byte>> joined;  // Lists written in pieces.
  };

  struct Named {
    std::string_view name;  // In the record.
    Found found;
  };

  // Where the values of a fixed number of numbers go, for a block of records.
  struct Column {
    std::size_t feature = 0;
    Number number = Number::kInt64;
    std::span<std::byte> rows;            // As many rows as records, aligned.
    const std::byte* fallback = nullptr;  // A row for records that lack it.
  };

  // `names` are those of the features to find, each once.  With
  // `refuse_others`, a record that has another feature is an error.
  ExampleParser(std::vector<std::string> names, bool refuse_others);

  [[nodiscard]] const std::vector<std::string>& names() const noexcept {
    return names_;
  }

  // Finds the features of a record.  Its lists are not read yet: they may
  // still be damaged.
  Status find(Bytes record, Finds& finds) const;

  // Finds all features of a record, whatever they are called, sorted by name.
  // Those without a list are left out, but fail as others do if their name is
  // not UTF-8.
  static Status find_all(Bytes record, std::vector<Named>& named, Finds& finds);

  // Writes the numbers of a feature to all of `to`, as read_numbers() does.
  Status read(std::size_t feature, const Found& found, Number number,
              std::span<std::byte> to) const;

  // Reads the records [offsets[k], offsets[k + 1]) of `data`.  An error is
  // that of the record `position`.
  // REQUIRES: offsets ascend, and do not exceed the size of `data`.
  Status read_block(Bytes data, std::span<const std::int64_t> offsets,
                    std::span<const Column> columns,
                    std::size_t& position) const;

  // Fails unless a feature is there and has a list of the kind `wanted`.
  Status check(std::size_t feature, const Found& found, ListKind wanted) const;

 private:
  [[nodiscard]] std::size_t index_of(std::string_view name) const noexcept;

  const std::vector<std::string> names_;
  const bool refuse_others_;
  // Indices of names by their hash; a power of two, more than half empty.
  std::vector<std::uint32_t> table_;
};

// Says of which feature something is true: "feature 'x' (at byte 3): ...".
Status about(std::string_view name, const ExampleParser::Found& found,
             const Status& status);

}  // namespace gristmill
