// Reads the header of what may be a JPEG file and renders it: as a whole, in
// part, turned, and at a smaller size.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/images/jpeg_header.hpp"
#include "core/images/render.hpp"

namespace gristmill {
namespace {

// Callers bound the pixels; a file of few bytes may have 4 G of them.
constexpr std::int64_t kMaxPixels = 1 << 14;

void render(const Picture& picture, const Box& crop, int orientation,
            bool draft) {
  Layout layout;
  layout.height = 9;
  layout.width = 7;
  layout.channels = orientation % 2 == 1 ? 3 : 1;
  RenderPlan plan;
  plan.crop = crop;
  plan.height = 8;
  plan.width = 10;
  plan.left = 1;
  plan.orientation = orientation;
  RenderOptions options;
  options.draft = draft;
  // Memory of exactly that size, so that writing past the end is seen.
  std::vector<std::byte> out(layout.picture_bytes());
  Renderer renderer(layout, options);
  static_cast<void>(renderer.render(picture, plan, out.data()).ok());
}

void read(std::span<const std::byte> file) {
  const auto read = read_jpeg_header(file);
  if (!read.ok()) return;
  const auto header = Result(read).take();
  if (!header || std::int64_t{header->height} * header->width > kMaxPixels) {
    return;
  }
  if (header->orientation < 1 || header->orientation > 8) abort();
  const int height = header->height;
  const int width = header->width;
  Picture picture;
  picture.file = file;
  render(picture, {0, 0, height, width}, 1, false);
  const Box part{height / 2, width / 3, (height + 3) / 4, (width + 2) / 3};
  render(picture, part, 1, false);
  render(picture, {0, 0, width, height}, 6, true);
}

}  // namespace
}  // namespace gristmill

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  // A copy of exactly that size, so that reading past the end is seen.
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> file(bytes, bytes + size);
  gristmill::read(file);
  return 0;
}
