// A TarSample holds the key and the members of a sample, parsed from the bytes
// between its first header and the end of its last member's data.
//
// Thread safety: a plain value, with views into the parsed bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.hpp"

namespace gristmill {

struct TarSample {
  struct Member {
    std::string extension;  // With ASCII letters in lower case.
    std::span<const std::byte> data;
  };

  // Parses a sample.  Fails unless `bytes` are exactly the members of one
  // sample, with different extensions.
  static Result<TarSample> parse(std::span<const std::byte> bytes);

  std::string key;
  std::vector<Member> members;
};

// Returns the extension with ASCII letters in lower case.
[[nodiscard]] std::string tar_lowercase(std::string_view extension);

}  // namespace gristmill
