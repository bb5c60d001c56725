#include <string>
#include <string_view>

#include "core/base/utf8.hpp"
#include "core/check.hpp"

namespace gristmill {
namespace {

// Encodes a code point like UTF-8 in exactly `size` bytes.
std::string written(unsigned point, unsigned size) {
  if (size == 1) return {static_cast<char>(point)};
  std::string text(size, '\0');
  for (unsigned i = size - 1; i > 0; --i, point >>= 6) {
    text[i] = static_cast<char>(0x80 | (point & 0x3f));
  }
  text[0] = static_cast<char>((0xf00 >> size & 0xff) | point);
  return text;
}

void test_every_code_point_is_valid() {
  for (unsigned point = 0; point < 0x1fffff; ++point) {
    const bool character =
        point < 0x110000 && (point < 0xd800 || point > 0xdfff);
    const unsigned least = point < 0x80      ? 1
                           : point < 0x800   ? 2
                           : point < 0x10000 ? 3
                                             : 4;
    for (unsigned size = least; size <= 4; ++size) {
      const std::string text = written(point, size);
      CHECK_EQ(is_utf8(text), character && size == least);
      CHECK_EQ(is_utf8("a" + text + "z"), character && size == least);
    }
  }
}

void test_truncated_sequence_is_invalid() {
  const std::string_view text = "\xf0\x9f\x8c\xbe";
  CHECK(is_utf8(text));
  CHECK(is_utf8(""));
  for (std::size_t size = 1; size < text.size(); ++size) {
    CHECK(!is_utf8(text.substr(0, size)));
    CHECK(!is_utf8(std::string(text.substr(0, size)) + "zzzz"));
    CHECK(!is_utf8(text.substr(size)));
  }
  CHECK(!is_utf8("\xf8\x88\x80\x80\x80"));
  CHECK(!is_utf8("\xff"));
}

}  // namespace
}  // namespace gristmill

int main() {
  gristmill::test_every_code_point_is_valid();
  gristmill::test_truncated_sequence_is_invalid();
  return 0;
}
