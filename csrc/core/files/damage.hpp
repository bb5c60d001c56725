// What errors say about a file that is not as it should be.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/base/status.hpp"

namespace gristmill {

inline Status damaged(std::string what) {
  return Status(Code::kInvalidArgument, std::move(what));
}

// "5, expected 7".
inline std::string found(std::uint64_t value, std::uint64_t expected) {
  return std::to_string(value) + ", expected " + std::to_string(expected);
}

}  // namespace gristmill
