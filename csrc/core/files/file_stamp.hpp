// What tells one version of a data file from the next.
//
// Thread safety: none; plain values.
#pragma once

#include <cstdint>

#include "core/files/file.hpp"

namespace gristmill {

struct FileStamp {
  std::uint64_t size = 0;
  std::uint64_t version = 0;  // See File::version().

  static FileStamp of(const File& file) {
    return {file.size(), file.version()};
  }
  bool operator==(const FileStamp&) const = default;
};

}  // namespace gristmill
