// A TarSample is the bytes of a tar file from the first header of a sample to
// the end of its last member's data, taken apart.
//
// Thread safety: a plain value; views into the bytes it was made of.
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
    std::string extension;  // ASCII letters in lower case.
    std::span<const std::byte> data;
  };

  // Takes a sample apart.  Fails unless `bytes` are just the members of one
  // sample, of which no two have one extension.
  static Result<TarSample> parse(std::span<const std::byte> bytes);

  std::string key;
  std::vector<Member> members;
};

// Letters of ASCII in lower case.
[[nodiscard]] std::string tar_lower(std::string_view extension);

}  // namespace gristmill
