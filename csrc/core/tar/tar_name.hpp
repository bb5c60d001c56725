// Splits the name of a tar file's member into the key of its sample and the
// extension.
//
// The rules are those of webdataset: the key of "a/b.c.JPG" is "a/b", and its
// extension is "c.jpg".
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string_view>

namespace gristmill {

struct TarField {
  std::string_view key;
  std::string_view extension;  // In the case of the name.
};

// Returns the key and the extension, or nullopt if the member does not belong
// to a sample: members in "__meta__", for example, and names without a dot.
[[nodiscard]] std::optional<TarField> tar_field(std::string_view name) noexcept;

}  // namespace gristmill
