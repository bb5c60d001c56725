#include "core/images/resize.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <numbers>

#include "core/images/lanes.hpp"

namespace gristmill {
namespace {

using lanes::I32x4;
using lanes::U8x16;

constexpr int kWeightBits = 22;
constexpr int kLowBits = 8;

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double hamming(double x) {
  constexpr double a = 0.54F;  // Pillow uses single precision for these.
  constexpr double b = 0.46F;
  x = std::abs(x);
  if (x == 0) return 1;
  if (x >= 1) return 0;
  x *= std::numbers::pi;
  return std::sin(x) / x * (a + b * std::cos(x));
}

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// Returns the weight of a sample at distance x if the picture does not shrink.
double weight_at(Filter filter, double x) {
  switch (filter) {
    case Filter::kNearest:
      break;  // Does not use weights.
    case Filter::kBox:
      return x > -0.5 && x <= 0.5 ? 1 : 0;
    case Filter::kBilinear:
      return std::max(0.0, 1 - std::abs(x));
    case Filter::kHamming:
      return hamming(x);
    case Filter::kBicubic:
      return bicubic(x);
    case Filter::kLanczos:
      return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
  }
  return 0;
}

double support_of(Filter filter) {
  switch (filter) {
    case Filter::kNearest:
      return 0;
    case Filter::kBox:
      return 0.5;
    case Filter::kBilinear:
    case Filter::kHamming:
      return 1;
    case Filter::kBicubic:
      return 2;
    case Filter::kLanczos:
      return 3;
  }
  return 0;
}

// The weights for one output sample: weight k is for input sample `start` + k.
struct Weights {
  Weights(Filter filter_kind, int samples, int size)
      : filter(filter_kind),
        num_input(samples),
        scale(static_cast<double>(samples) / size),
        shrink(std::max(scale, 1.0)),
        support(support_of(filter_kind) * shrink),
        raw(2 * static_cast<std::size_t>(std::ceil(support)) + 1) {}

  // Determines the input samples of output sample `i`.
  void move_to(int i) {
    center = (i + 0.5) * scale;
    start = std::max(static_cast<int>(center - support + 0.5), 0);
    const int end =
        std::min(static_cast<int>(center + support + 0.5), num_input);
    assert(start < end);
    count = static_cast<std::size_t>(end - start);
  }

  // Computes the weights of these samples.  The operations have the same order
  // as in Pillow, since another order rounds differently.
  void compute() {
    const double step = 1.0 / shrink;
    double sum = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const double position = static_cast<int>(k) + start - center + 0.5;
      raw[k] = weight_at(filter, position * step);
      sum += raw[k];
    }
    for (std::size_t k = 0; k < count && sum != 0; ++k) raw[k] /= sum;
  }

  // Returns weight `k` as a fixed-point number with 22 fractional bits.
  [[nodiscard]] std::int32_t fixed(std::size_t k) const {
    return static_cast<std::int32_t>(raw[k] * (1 << kWeightBits) +
                                     (raw[k] < 0 ? -0.5 : 0.5));
  }

  const Filter filter;
  const int num_input;
  const double scale;    // Input samples per output sample.
  const double shrink;   // The same, but at least 1.
  const double support;  // The distance at which weights become 0.
  double center = 0;     // The output sample's position in the input.
  int start = 0;
  std::size_t count = 0;    // The number of input samples from `start` on.
  std::vector<double> raw;  // The first `count` weights, whose sum is 1.
};

I32x4 sum_of(I32x4 high, I32x4 low) {
  // The terms may wrap around, but the total fits, so it is exact.
  using Unsigned = std::uint32_t __attribute__((vector_size(16)));
  const auto whole = (reinterpret_cast<Unsigned>(high) << kLowBits) +
                     reinterpret_cast<Unsigned>(low) +
                     (1u << (kWeightBits - 1));
  return reinterpret_cast<I32x4>(whole) >> kWeightBits;
}

// Computes one pixel of 4 bytes from the 2 * `pairs` pixels at `in`.
inline std::uint32_t pixel_of(const Axis::Pair* weights, int pairs,
                              const std::uint8_t* in) {
  I32x4 high{};
  I32x4 low{};
  for (int k = 0; k < pairs; ++k) {
    const auto both = lanes::widen_low(
        lanes::interleave_quarters(lanes::load_half(in + 8 * k)));
    high += lanes::dot(both, lanes::spread(weights[k].high));
    low += lanes::dot(both, lanes::spread(weights[k].low));
  }
  const I32x4 sum = sum_of(high, low);
  const U8x16 packed = lanes::pack(sum, sum, sum, sum);
  std::uint32_t pixel;
  std::memcpy(&pixel, &packed, sizeof pixel);
  return pixel;
}

// Computes each pixel from `kPairs` pairs, or from axis.pairs() if `kPairs` is
// 0.
template <int kPairs>
void make_pixels(const Axis& axis, const std::uint8_t* in, int channels,
                 bool flip, std::uint8_t* out) {
  const int pairs = kPairs != 0 ? kPairs : axis.pairs();
  const int size = axis.size();
  const std::ptrdiff_t step = flip ? -1 : 1;
  std::ptrdiff_t i = flip ? size - 1 : 0;
  for (int x = 0; x < size; ++x, i += step, out += channels) {
    const std::uint32_t pixel =
        pixel_of(axis.weights() + i * pairs, pairs,
                 in + 4 * static_cast<std::ptrdiff_t>(axis.starts()[i]));
    std::memcpy(out, &pixel, sizeof pixel);
  }
}

// Returns 16 bytes of an output line, computed from 16 bytes at `in` of each
// input line.  `last` is the last input line.
U8x16 line_part(const Axis& axis, const Axis::Pair* weights, int start,
                int last, const std::uint8_t* in, std::size_t stride) {
  I32x4 high[4]{};
  I32x4 low[4]{};
  for (int k = 0; k < axis.pairs(); ++k) {
    const int first = std::min(start + 2 * k, last);
    const int second = std::min(start + 2 * k + 1, last);
    const U8x16 a = lanes::load(in + static_cast<std::size_t>(first) * stride);
    const U8x16 b = lanes::load(in + static_cast<std::size_t>(second) * stride);
    const U8x16 left = lanes::interleave_low(a, b);
    const U8x16 right = lanes::interleave_high(a, b);
    const lanes::I16x8 quarters[] = {
        lanes::widen_low(left), lanes::widen_high(left),
        lanes::widen_low(right), lanes::widen_high(right)};
    const auto weight_high = lanes::spread(weights[k].high);
    const auto weight_low = lanes::spread(weights[k].low);
    for (int q = 0; q < 4; ++q) {
      high[q] += lanes::dot(quarters[q], weight_high);
      low[q] += lanes::dot(quarters[q], weight_low);
    }
  }
  return lanes::pack(sum_of(high[0], low[0]), sum_of(high[1], low[1]),
                     sum_of(high[2], low[2]), sum_of(high[3], low[3]));
}

}  // namespace

Axis::Axis(Filter filter, int num_input, int size, int first, int last) {
  assert(num_input >= 1 && 0 <= first && first < last && last <= size);
  starts_.reserve(static_cast<std::size_t>(last - first));
  if (filter == Filter::kNearest || num_input == size) {
    pick_samples(num_input, size, first, last);
  } else {
    compute_weights(filter, num_input, size, first, last);
  }
  for (int& start : starts_) start -= begin_;
}

// Adds up steps like Pillow, for the same rounding.
void Axis::pick_samples(int num_input, int size, int first, int last) {
  const double step = static_cast<double>(num_input) / size;
  double position = step * 0.5;
  for (int i = 0; i < last; ++i, position += step) {
    if (i < first) continue;
    starts_.push_back(std::min(static_cast<int>(position), num_input - 1));
  }
  begin_ = starts_.front();
  end_ = starts_.back() + 1;
}

void Axis::compute_weights(Filter filter, int num_input, int size, int first,
                           int last) {
  Weights weights(filter, num_input, size);
  std::size_t max_count = 0;
  for (int i = first; i < last; ++i) {
    weights.move_to(i);
    max_count = std::max(max_count, weights.count);
  }
  const std::size_t pairs = (max_count + 1) / 2;
  pairs_ = static_cast<int>(pairs);
  weights_.assign(static_cast<std::size_t>(last - first) * pairs, Pair{});
  begin_ = num_input;
  Pair* to = weights_.data();
  for (int i = first; i < last; ++i, to += pairs) {
    weights.move_to(i);
    weights.compute();
    begin_ = std::min(begin_, weights.start);
    end_ = std::max(end_, weights.start + static_cast<int>(weights.count));
    starts_.push_back(weights.start);
    for (std::size_t k = 0; k < weights.count; ++k) {
      const std::int32_t weight = weights.fixed(k);
      to[k / 2].high[k % 2] = static_cast<std::int16_t>(weight >> kLowBits);
      to[k / 2].low[k % 2] =
          static_cast<std::int16_t>(weight & ((1 << kLowBits) - 1));
    }
  }
}

void resize_columns(const Axis& axis, const std::uint8_t* in, int channels,
                    bool flip, std::uint8_t* out) {
  switch (axis.pairs()) {
    case 0: {
      const int size = axis.size();
      for (int x = 0; x < size; ++x, out += channels) {
        const int start = axis.starts()[flip ? size - 1 - x : x];
        std::memcpy(out, in + 4 * static_cast<std::ptrdiff_t>(start), 4);
      }
      return;
    }
    case 1:
      return make_pixels<1>(axis, in, channels, flip, out);
    case 2:
      return make_pixels<2>(axis, in, channels, flip, out);
    default:
      return make_pixels<0>(axis, in, channels, flip, out);
  }
}

void resize_rows(const Axis& axis, int i, const std::uint8_t* in, int first,
                 std::size_t stride, std::size_t bytes, std::uint8_t* out) {
  const int start = axis.starts()[i] - first;
  const int last = axis.end() - axis.begin() - 1 - first;
  if (axis.is_copy()) {
    std::memcpy(out, in + static_cast<std::size_t>(start) * stride, bytes);
    return;
  }
  const Axis::Pair* const weights =
      axis.weights() + static_cast<std::ptrdiff_t>(i) * axis.pairs();
  for (std::size_t position = 0; position < bytes; position += sizeof(U8x16)) {
    const U8x16 part =
        line_part(axis, weights, start, last, in + position, stride);
    std::memcpy(out + position, &part, std::min(sizeof part, bytes - position));
  }
}

}  // namespace gristmill
