// What the name of a tar file's member says of the sample it belongs to.
//
// The rules are those of webdataset: the key of "a/b.c.JPG" is "a/b", and its
// extension "c.jpg".
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string_view>

namespace gristmill {

struct TarField {
  std::string_view key;
  std::string_view extension;  // As it is in the name.
};

// Returns what a name says; nothing if the member belongs to no sample, as
// those of "__meta__" do, and names without a dot.
[[nodiscard]] std::optional<TarField> tar_field(std::string_view name) noexcept;

}  // namespace gristmill
