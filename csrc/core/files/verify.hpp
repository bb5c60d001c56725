// What is checked of a file when it is read, and what errors say about one
// that is not as it should be.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/status.hpp"

namespace gristmill {

// Whose checksums are compared: those of data and headers, of headers, or
// none.  The length in a TFRecord's header is compared with the index in any
// case.
enum class Verify { kAll, kHeaders, kNone };

template <class... Parts>
Status damaged(const Parts&... parts) {
  return Status(Code::kInvalidArgument, parts...);
}

// "no memory for its data".
template <class... Parts>
Status no_memory_for(const Parts&... parts) {
  return Status(Code::kNoMemory, "no memory for ", parts...);
}

// "5, expected 7".
inline std::string found(std::uint64_t value, std::uint64_t expected) {
  return concat(value, ", expected ", expected);
}

}  // namespace gristmill
