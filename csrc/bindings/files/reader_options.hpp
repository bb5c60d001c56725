// The options that readers of files have in common, by their names in Python.
#pragma once

#include <string>
#include <string_view>

#include "bindings/bind.hpp"
#include "core/files/local_file.hpp"
#include "core/files/verify.hpp"

namespace gristmill::bind {

inline Verify verify_of(std::string_view name) {
  if (name == "all") return Verify::kAll;
  if (name == "headers") return Verify::kHeaders;
  if (name == "none") return Verify::kNone;
  throw py::value_error("verify is '" + std::string(name) +
                        "', but must be 'all', 'headers' or 'none'");
}

inline LocalFile::Access access_of(std::string_view name) {
  if (name == "pread") return LocalFile::Access::kPread;
  if (name == "mmap") return LocalFile::Access::kMmap;
  throw py::value_error("access is '" + std::string(name) +
                        "', but must be 'pread' or 'mmap'");
}

}  // namespace gristmill::bind
