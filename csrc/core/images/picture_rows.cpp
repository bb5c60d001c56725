#include "core/images/picture_rows.hpp"

#include <cstring>
#include <utility>

namespace gristmill {
namespace {

constexpr std::size_t kPixelBytes = 4;

std::size_t length_of(int pixels) {
  return kPixelBytes * static_cast<std::size_t>(pixels);
}

// An orientation reverses the order of the stored rows, of the stored columns,
// or both.  After that, it exchanges rows and columns if it is at least 5.
bool swaps_axes(int orientation) { return orientation >= 5; }
bool reverses_rows(int orientation) {
  return orientation == 3 || orientation == 4 || orientation == 6 ||
         orientation == 7;
}
bool reverses_columns(int orientation) {
  return orientation == 2 || orientation == 3 || orientation == 7 ||
         orientation == 8;
}

// Sets each pixel's first byte to its luminance, computed like Pillow.
void set_luminance(std::uint8_t* at, int count) {
  for (; count > 0; --count, at += kPixelBytes) {
    at[0] = static_cast<std::uint8_t>(
        (at[0] * 19595u + at[1] * 38470u + at[2] * 7471u + 0x8000u) >> 16);
  }
}

// Converts pixels of `kChannels` bytes to pixels of 4 bytes.
template <int kChannels>
void widen(const std::uint8_t* in, int count, std::uint8_t* out) {
  for (; count > 0; --count, in += kChannels, out += kPixelBytes) {
    std::memcpy(out, in, kChannels);
  }
}

void widen(const std::uint8_t* in, int count, int channels, std::uint8_t* out) {
  switch (channels) {
    case 1:
      return widen<1>(in, count, out);
    case 2:
      return widen<2>(in, count, out);
    case 3:
      return widen<3>(in, count, out);
    default:
      return widen<4>(in, count, out);
  }
}

}  // namespace

Status PictureRows::open(const Picture& picture, int channels,
                         int orientation) {
  picture_ = picture;
  channels_ = channels;
  orientation_ = orientation;
  height_ = picture.height;
  width_ = picture.width;
  if (picture.pixels == nullptr) {
    TRY(decoder_.open(picture.file));
    height_ = decoder_.height();
    width_ = decoder_.width();
  }
  if (swaps_axes(orientation)) std::swap(height_, width_);
  return {};
}

Status PictureRows::start(const Box& box, int shrink, std::size_t slack) {
  if (orientation_ == 1) return start_stored(box, shrink, slack);
  Box stored = box;
  int height = (height_ + shrink - 1) / shrink;
  int width = (width_ + shrink - 1) / shrink;
  if (swaps_axes(orientation_)) {
    stored = {box.left, box.top, box.width, box.height};
    std::swap(height, width);
  }
  if (reverses_rows(orientation_)) {
    stored.top = height - stored.top - stored.height;
  }
  if (reverses_columns(orientation_)) {
    stored.left = width - stored.left - stored.width;
  }
  TRY(start_stored(stored, shrink, 0));
  oriented_pixels_.resize(
      length_of(box.width) * static_cast<std::size_t>(box.height) + slack);
  TRY(orient(stored));
  box_ = box;
  next_row_ = 0;
  return {};
}

// Reads the stored rectangle and writes it to oriented_pixels_ in the right
// orientation.
Status PictureRows::orient(const Box& stored) {
  const bool axes_are_swapped = swaps_axes(orientation_);
  const std::size_t length =
      length_of(axes_are_swapped ? stored.height : stored.width);
  for (int i = 0; i < stored.height; ++i) {
    const std::uint8_t* const row = TRY(next_stored_row());
    const auto y = static_cast<std::size_t>(
        reverses_rows(orientation_) ? stored.height - 1 - i : i);
    for (int j = 0; j < stored.width; ++j) {
      const auto x = static_cast<std::size_t>(
          reverses_columns(orientation_) ? stored.width - 1 - j : j);
      std::memcpy(
          &oriented_pixels_[axes_are_swapped ? x * length + y * kPixelBytes
                                             : y * length + x * kPixelBytes],
          row + length_of(j), kPixelBytes);
    }
  }
  return {};
}

Result<const std::uint8_t*> PictureRows::next() {
  if (orientation_ == 1) return next_stored_row();
  return static_cast<const std::uint8_t*>(
      oriented_pixels_.data() +
      static_cast<std::size_t>(next_row_++) * length_of(box_.width));
}

Status PictureRows::finish() {
  return picture_.pixels == nullptr ? decoder_.finish() : Status();
}

Status PictureRows::start_stored(const Box& box, int shrink,
                                 std::size_t slack) {
  box_ = box;
  next_row_ = 0;
  if (picture_.pixels == nullptr) return decoder_.start(box, shrink, slack);
  row_.resize(length_of(box.width) + slack);
  return {};
}

Result<const std::uint8_t*> PictureRows::next_stored_row() {
  if (picture_.pixels == nullptr) {
    std::uint8_t* const row = TRY(decoder_.next_row());
    if (channels_ == 1) set_luminance(row, box_.width);
    return static_cast<const std::uint8_t*>(row);
  }
  const auto y = static_cast<std::size_t>(box_.top + next_row_++);
  const std::size_t first = y * static_cast<std::size_t>(picture_.width) +
                            static_cast<std::size_t>(box_.left);
  widen(picture_.pixels + first * static_cast<std::size_t>(channels_),
        box_.width, channels_, row_.data());
  return static_cast<const std::uint8_t*>(row_.data());
}

}  // namespace gristmill
