#include "core/tar/tar_name.hpp"

#include <algorithm>

namespace gristmill {
namespace {

constexpr std::string_view kMeta = "__";

// Returns whether a name starts with a match of the regular expression
// __[^/]*__($|/).  As in Python, $ also matches before a final line feed.
bool is_meta(std::string_view name) noexcept {
  if (!name.starts_with(kMeta)) return false;
  const auto slash = name.find('/');
  std::string_view folder_name =
      name.substr(kMeta.size(), slash - kMeta.size());
  if (folder_name.ends_with(kMeta)) return true;
  if (slash != name.npos || !folder_name.ends_with('\n')) return false;
  folder_name.remove_suffix(1);
  return folder_name.ends_with(kMeta);
}

// Returns whether the regular expression ^((?:.*/|)[^.]+)[.]([^/]*)$ splits a
// name at `dot`, the first dot after the last slash.  That needs one or more
// characters, and no dot, between the start of the name or a slash and `dot`.
// The part up to that slash must not contain a line feed.
bool has_key(std::string_view name, std::size_t dot) noexcept {
  if (dot == 0) return false;
  const auto previous_dot = name.rfind('.', dot - 1);
  if (previous_dot == name.npos) return true;
  if (dot < 2) return false;
  const auto slash = name.rfind('/', std::min(dot - 2, name.find('\n')));
  return slash != name.npos && slash > previous_dot;
}

}  // namespace

std::optional<TarField> tar_field(std::string_view name) noexcept {
  if (is_meta(name)) return std::nullopt;
  const auto slash = name.rfind('/');
  const auto dot = name.find('.', slash == name.npos ? 0 : slash + 1);
  if (dot == name.npos || !has_key(name, dot)) return std::nullopt;
  return TarField{name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace gristmill
