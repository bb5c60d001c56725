// Headers of JPEG files, including damaged ones.
#include "core/check.hpp"
#include "core/images/jpeg_header.hpp"
#include "core/images/jpeg_samples.hpp"

namespace {

using gristmill::File;
using gristmill::Kind;
using gristmill::kKinds;
using gristmill::read_jpeg_header;

void test_header_has_size_for_every_kind() {
  for (const Kind& kind : kKinds) {
    auto header = read_jpeg_header(gristmill::some_jpeg(13, 70, kind));
    CHECK(header.ok() && header.value().has_value());
    CHECK_EQ(header.value()->height, 13);
    CHECK_EQ(header.value()->width, 70);
    CHECK_EQ(header.value()->channels, kind.gray ? 1 : 3);
    CHECK_EQ(header.value()->orientation, 1);
  }
}

// A file that is truncated before its first scan is an error, or not a JPEG
// file.
void test_truncated_header_is_error() {
  const File file = gristmill::some_jpeg(13, 70, kKinds[2]);
  std::size_t scan = 0;
  while (file[scan] != std::byte{0xFF} || file[scan + 1] != std::byte{0xDA}) {
    ++scan;
  }
  for (std::size_t size = 0; size < scan + 10; ++size) {
    const File cut(file.begin(), file.begin() + static_cast<long>(size));
    auto header = read_jpeg_header(cut);
    CHECK_EQ(header.ok(), size < 3);
    if (header.ok()) CHECK(!header.value().has_value());
  }
}

}  // namespace

int main() {
  test_header_has_size_for_every_kind();
  test_truncated_header_is_error();
}
