// Compares the resizing of one axis with sums in the same order.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "core/check.hpp"
#include "core/images/resize.hpp"

namespace {

using gristmill::Axis;
using gristmill::Filter;

// Applies the bilinear filter as it is defined.
std::uint8_t expected_sample(const std::vector<std::uint8_t>& line, int size,
                             int i) {
  const double from = static_cast<double>(line.size());
  const double scale = from / size;
  const double reach = std::max(scale, 1.0);
  const double center = (i + 0.5) * scale;
  const auto first = static_cast<int>(std::max(center - reach + 0.5, 0.0));
  const auto last = static_cast<int>(std::min(center + reach + 0.5, from));
  std::vector<double> weights;
  double sum = 0;
  for (int x = first; x < last; ++x) {
    weights.push_back(
        std::max(0.0, 1 - std::abs((x - center + 0.5) * (1.0 / reach))));
    sum += weights.back();
  }
  std::int64_t total = 1 << 21;
  for (int x = first; x < last; ++x) {
    const double weight = weights[static_cast<std::size_t>(x - first)] / sum;
    total += static_cast<std::int64_t>(weight * (1 << 22) + 0.5) *
             line[static_cast<std::size_t>(x)];
  }
  return static_cast<std::uint8_t>(
      std::clamp<std::int64_t>(total >> 22, 0, 255));
}

std::vector<std::uint8_t> some_line(int size) {
  std::mt19937 random(static_cast<unsigned>(size));
  std::vector<std::uint8_t> line;
  for (int i = 0; i < size; ++i) {
    line.push_back(static_cast<std::uint8_t>(random()));
  }
  return line;
}

// Returns the samples of a line resized by `axis`.  The line is the first
// channel of a row of pixels.
std::vector<std::uint8_t> columns_of(const Axis& axis,
                                     const std::vector<std::uint8_t>& line,
                                     int channels, bool flip) {
  const auto needed = static_cast<std::size_t>(axis.end() - axis.begin());
  std::vector<std::uint8_t> in(needed * 4 + slack_of(axis), 99);
  for (std::size_t x = 0; x < needed; ++x) {
    in[x * 4] = line[static_cast<std::size_t>(axis.begin()) + x];
  }
  const auto step = static_cast<std::size_t>(channels);
  const auto count = static_cast<std::size_t>(axis.size());
  std::vector<std::uint8_t> out(count * step + 4);
  resize_columns(axis, in.data(), channels, flip, out.data());
  std::vector<std::uint8_t> samples;
  for (std::size_t x = 0; x < count; ++x) samples.push_back(out[x * step]);
  return samples;
}

// Does the same for a line that is a column of rows of 3 bytes.
std::vector<std::uint8_t> rows_of(const Axis& axis,
                                  const std::vector<std::uint8_t>& line) {
  constexpr std::size_t stride = 16;
  const auto needed = static_cast<std::size_t>(axis.end() - axis.begin());
  std::vector<std::uint8_t> in(needed * stride, 99);
  for (std::size_t y = 0; y < needed; ++y) {
    in[y * stride + 2] = line[static_cast<std::size_t>(axis.begin()) + y];
  }
  std::vector<std::uint8_t> samples;
  for (int i = 0; i < axis.size(); ++i) {
    std::uint8_t out[3];
    resize_rows(axis, i, in.data(), 0, stride, sizeof out, out);
    samples.push_back(out[2]);
  }
  return samples;
}

void test_any_part_equals_definition() {
  constexpr int sizes[][2] = {{1, 1},     {1, 9},   {9, 1},    {2, 3},
                              {3, 2},     {7, 224}, {224, 7},  {300, 224},
                              {460, 224}, {50, 50}, {5000, 3}, {65500, 1}};
  for (const auto& [from, size] : sizes) {
    const auto line = some_line(from);
    for (const int first : {0, size / 3, size - 1}) {
      for (const int last : {first + 1, size}) {
        const Axis axis(Filter::kBilinear, from, size, first, last);
        std::vector<std::uint8_t> expected;
        for (int i = first; i < last; ++i) {
          expected.push_back(expected_sample(line, size, i));
        }
        CHECK(rows_of(axis, line) == expected);
        for (int channels = 1; channels <= 4; ++channels) {
          CHECK(columns_of(axis, line, channels, false) == expected);
          auto flipped = columns_of(axis, line, channels, true);
          std::ranges::reverse(flipped);
          CHECK(flipped == expected);
        }
      }
    }
  }
}

void test_filters_keep_plain_color() {
  const std::vector<std::uint8_t> line(300, 200);
  for (int filter = 0; filter < 6; ++filter) {
    for (const int size : {1, 10, 299, 300, 1000}) {
      const Axis axis(static_cast<Filter>(filter), 300, size, 0, size);
      for (const std::uint8_t sample : rows_of(axis, line)) {
        CHECK_EQ(static_cast<int>(sample), 200);
      }
    }
  }
}

void test_nearest_takes_sample_at_center() {
  std::vector<std::uint8_t> line{10, 20, 30, 40};
  const auto nearest = [&](int size) {
    return rows_of(Axis(Filter::kNearest, 4, size, 0, size), line);
  };
  CHECK((nearest(2) == std::vector<std::uint8_t>{20, 40}));
  CHECK((nearest(1) == std::vector<std::uint8_t>{30}));
  CHECK((nearest(8) ==
         std::vector<std::uint8_t>{10, 10, 20, 20, 30, 30, 40, 40}));
}

}  // namespace

int main() {
  test_any_part_equals_definition();
  test_filters_keep_plain_color();
  test_nearest_takes_sample_at_center();
}
