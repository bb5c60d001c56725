// Resizes one axis of a picture with the same result as Pillow, bit for bit.
// Each sample is a weighted sum of the samples around it, from a larger range
// if the picture shrinks.  Weights have 22 bits, and sums are rounded to 8 bits
// after each axis.
//
// Thread safety: plain values; functions write only to `out`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gristmill {

// _core.render_images takes these filters by number, in this order.
enum class Filter { kNearest, kBox, kBilinear, kHamming, kBicubic, kLanczos };

// The input samples of each sample of a resized line, and their weights.
class Axis {
 public:
  // The weights of two neighbors.  Each is split into 14 high and 8 low bits,
  // so that its parts fit into 16 bits for multiplication.
  struct Pair {
    std::int16_t high[2];
    std::int16_t low[2];
  };

  // Resizes `num_input` samples to `size` samples, of which only [first, last)
  // are computed.
  // REQUIRES: num_input >= 1; 0 <= first < last <= size.
  Axis(Filter filter, int num_input, int size, int first, int last);

  // The input samples [begin(), end()) are needed.
  [[nodiscard]] int begin() const noexcept { return begin_; }
  [[nodiscard]] int end() const noexcept { return end_; }

  // Returns the number of output samples.
  [[nodiscard]] int size() const noexcept {
    return static_cast<int>(starts_.size());
  }

  // Returns whether every output sample is a copy of an input sample.
  [[nodiscard]] bool is_copy() const noexcept { return pairs_ == 0; }

  // Output sample i is computed from the 2 * pairs() input samples from
  // starts()[i] on, counted from begin().  Their pairs of weights begin at
  // weights()[i * pairs()].  The last weights are 0 if their samples are not
  // used, and these samples may lie beyond end().  If the axis copies, output
  // sample i is input sample starts()[i].
  [[nodiscard]] int pairs() const noexcept { return pairs_; }
  [[nodiscard]] const int* starts() const noexcept { return starts_.data(); }
  [[nodiscard]] const Pair* weights() const noexcept { return weights_.data(); }

 private:
  void pick_samples(int num_input, int size, int first, int last);
  void compute_weights(Filter filter, int num_input, int size, int first,
                       int last);

  int begin_ = 0;
  int end_ = 0;
  int pairs_ = 0;
  std::vector<int> starts_;
  std::vector<Pair> weights_;
};

// Returns the number of bytes after a line of pixels that resize_columns() may
// read.
inline std::size_t slack_of(const Axis& axis) {
  return 8 * static_cast<std::size_t>(axis.pairs()) + 8;
}

// Computes a line of axis.size() pixels of `channels` bytes from a line with 4
// bytes per pixel, which begins with pixel axis.begin().  If `flip`, writes the
// pixels from right to left.
// REQUIRES: slack_of(axis) bytes after the line at `in` can be read, and 4
// bytes after the line at `out` can be written; 1 <= channels <= 4.
void resize_columns(const Axis& axis, const std::uint8_t* in, int channels,
                    bool flip, std::uint8_t* out);

// Computes `bytes` bytes of output line `i` from lines that are `stride` bytes
// apart.  The line at `in` is line axis.begin() + `first`.
// REQUIRES: first <= axis.starts()[i]; if axis.pairs() > 0, one line after the
// last can be read, and each line up to a multiple of 16 bytes.
void resize_rows(const Axis& axis, int i, const std::uint8_t* in, int first,
                 std::size_t stride, std::size_t bytes, std::uint8_t* out);

// Returns whether to resize rows before columns, like Pillow since version 13:
// if the height shrinks by more than twice as many pixels as the width.
constexpr bool rows_come_first(int from_height, int from_width, int height,
                               int width) {
  const int fewer = from_height - height;
  return fewer > 0 && fewer > 2 * (from_width - width);
}

}  // namespace gristmill
