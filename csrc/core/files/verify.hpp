// Options for checking a file, and parts of error messages about damaged files.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/status.hpp"

namespace gristmill {

// The checksums to verify: those of data and headers, those of headers, or
// none.  The length in a TFRecord header is always compared with the index.
enum class Verify { kAll, kHeaders, kNone };

template <class... Parts>
Status damaged(const Parts&... parts) {
  return Status(Code::kInvalidArgument, parts...);
}

// Returns an error such as "no memory for its data".
template <class... Parts>
Status no_memory_for(const Parts&... parts) {
  return Status(Code::kNoMemory, "no memory for ", parts...);
}

// Returns text such as "5, expected 7".
inline std::string found(std::uint64_t value, std::uint64_t expected) {
  return concat(value, ", expected ", expected);
}

}  // namespace gristmill
