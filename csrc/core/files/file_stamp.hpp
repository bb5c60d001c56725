// A FileStamp identifies a version of a data file.
//
// Thread safety: none; plain values.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/status.hpp"
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

// Fails if `expected` is set and differs from the stamp of the file.  The error
// names the file.
Status check_stamp(const File& file, const std::optional<FileStamp>& expected);

}  // namespace gristmill
