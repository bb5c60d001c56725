// Resizing of one axis of a picture as Pillow does it, bit for bit: each sample
// is a weighted sum of those around it, farther around where a picture shrinks,
// with weights of 22 bits, rounded to 8 bits after each axis.
//
// Thread safety: plain values; functions write only to `out`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gristmill {

// In the order of their numbers in _core.render_images.
enum class Filter { kNearest, kBox, kBilinear, kHamming, kBicubic, kLanczos };

// Which samples of a line make those of the resized line, and by how much.
class Axis {
 public:
  // Weights are kept for pairs of neighbours, each as 14 high and 8 low bits:
  // what fits into products of 16 bits.
  struct Pair {
    std::int16_t high[2];
    std::int16_t low[2];
  };

  // For the samples [first, last) of `size` that `from` samples are resized to.
  // REQUIRES: from >= 1; 0 <= first < last <= size.
  Axis(Filter filter, int from, int size, int first, int last);

  // The samples that are needed are [begin(), end()) of those resized.
  [[nodiscard]] int begin() const noexcept { return begin_; }
  [[nodiscard]] int end() const noexcept { return end_; }

  // How many samples are made.
  [[nodiscard]] int size() const noexcept {
    return static_cast<int>(starts_.size());
  }

  // True where every sample is one of those resized, as it is.
  [[nodiscard]] bool copies() const noexcept { return pairs_ == 0; }

  // Sample i is made of the 2 * pairs() samples from starts()[i] on, counted
  // from begin(), by weights()[i * pairs()] and those behind it; some weights
  // at the end are 0, of samples that may lie beyond end(). Where the axis
  // copies, it is the sample starts()[i].
  [[nodiscard]] int pairs() const noexcept { return pairs_; }
  [[nodiscard]] const int* starts() const noexcept { return starts_.data(); }
  [[nodiscard]] const Pair* weights() const noexcept { return weights_.data(); }

 private:
  void choose(int from, int size, int first, int last);
  void weigh(Filter filter, int from, int size, int first, int last);

  int begin_ = 0;
  int end_ = 0;
  int pairs_ = 0;
  std::vector<int> starts_;
  std::vector<Pair> weights_;
};

// Bytes behind a line of pixels that resize_columns() may read.
inline std::size_t slack_of(const Axis& axis) {
  return 8 * static_cast<std::size_t>(axis.pairs()) + 8;
}

// Makes a line of axis.size() pixels of `channels` bytes of one of 4 bytes a
// pixel, the first of which is pixel axis.begin(); from right to left if
// `flip`. REQUIRES: slack_of(axis) bytes can be read behind `in`, and 4 bytes
// behind `out` be written; 1 <= channels <= 4.
void resize_columns(const Axis& axis, const std::uint8_t* in, int channels,
                    bool flip, std::uint8_t* out);

// Makes `bytes` bytes of line `i` from lines that lie `stride` bytes apart. The
// line at `in` is line axis.begin() + `first`.
// REQUIRES: first <= axis.starts()[i]; a line can be read behind the last one
// where axis.pairs() > 0, and lines up to a multiple of 16 bytes.
void resize_rows(const Axis& axis, int i, const std::uint8_t* in, int first,
                 std::size_t stride, std::size_t bytes, std::uint8_t* out);

// True if a picture is resized by rows before columns, as it is by Pillow since
// version 13: if its height shrinks by more than twice as much as its width.
constexpr bool rows_come_first(int from_height, int from_width, int height,
                               int width) {
  const int fewer = from_height - height;
  return fewer > 0 && fewer > 2 * (from_width - width);
}

}  // namespace gristmill
