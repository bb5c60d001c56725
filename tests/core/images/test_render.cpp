// Complete renderings: orientation, padding, layout and threads.
#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "core/check.hpp"
#include "core/images/jpeg_samples.hpp"
#include "core/images/render.hpp"

namespace {

using gristmill::Axis;
using gristmill::Code;
using gristmill::File;
using gristmill::Filter;
using gristmill::kKinds;
using gristmill::Layout;
using gristmill::Picture;
using gristmill::Renderer;
using gristmill::RenderOptions;
using gristmill::RenderPlan;
using gristmill::Status;

using Pixels = std::vector<std::uint8_t>;

Picture in_memory(const Pixels& pixels, int height, int width) {
  Picture picture;
  picture.pixels = pixels.data();
  picture.height = height;
  picture.width = width;
  return picture;
}

RenderPlan whole(int height, int width) {
  RenderPlan plan;
  plan.crop = {0, 0, height, width};
  plan.height = height;
  plan.width = width;
  return plan;
}

Pixels rendered(const Layout& layout, const Picture& picture,
                const RenderPlan& plan) {
  Pixels out(layout.picture_bytes(), 77);
  Renderer renderer(layout, RenderOptions{});
  CHECK(renderer.render(picture, plan, reinterpret_cast<std::byte*>(out.data()))
            .ok());
  return out;
}

// A picture with the rows a b c and d e f, in each orientation of EXIF.
void test_orientations_equal_exif() {
  const Pixels pixels{'a', 'b', 'c', 'd', 'e', 'f'};
  const char* const expected[] = {"abcdef", "cbafed", "fedcba", "defabc",
                                  "adbecf", "daebfc", "fcebda", "cfbead"};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const bool sides = orientation >= 5;
    Layout layout;
    layout.height = sides ? 3 : 2;
    layout.width = sides ? 2 : 3;
    layout.channels = 1;
    RenderPlan plan = whole(layout.height, layout.width);
    plan.orientation = orientation;
    const Pixels out = rendered(layout, in_memory(pixels, 2, 3), plan);
    CHECK_EQ(std::string(out.begin(), out.end()), expected[orientation - 1]);
  }
}

void test_padding_is_zero_and_flipped() {
  const Pixels pixels{'a', 'b', 'c', 'd', 'e', 'f'};
  Layout layout;
  layout.height = 4;
  layout.width = 4;
  layout.channels = 1;
  RenderPlan plan = whole(2, 3);
  plan.top = -1;
  plan.left = 1;
  const auto shown = [&] {
    std::string text;
    for (const auto c : rendered(layout, in_memory(pixels, 2, 3), plan)) {
      text += c == 0 ? '.' : static_cast<char>(c);
    }
    return text;
  };
  CHECK_EQ(shown(), "....bc..ef......");
  plan.flip = true;
  CHECK_EQ(shown(), "......cb..fe....");
  plan.left = 3;
  CHECK_EQ(shown(), "................");
}

void test_table_and_layout_are_applied() {
  const Pixels pixels{1, 2, 3, 4, 5, 6};  // 1 x 2 pixels
  std::vector<std::uint16_t> table(3 * 256);
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t v = 0; v < 256; ++v) {
      table[c * 256 + v] = static_cast<std::uint16_t>(1000 * (c + 1) + v);
    }
  }
  Layout layout;
  layout.height = 1;
  layout.width = 2;
  layout.table = reinterpret_cast<const std::byte*>(table.data());
  layout.item_bytes = 2;
  const auto shown = [&] {
    const Pixels out = rendered(layout, in_memory(pixels, 1, 2), whole(1, 2));
    std::vector<std::uint16_t> items(out.size() / 2);
    std::memcpy(items.data(), out.data(), out.size());
    return items;
  };
  CHECK((shown() ==
         std::vector<std::uint16_t>{1001, 2002, 3003, 1004, 2005, 3006}));
  layout.channels_first = true;
  CHECK((shown() ==
         std::vector<std::uint16_t>{1001, 1004, 2002, 2005, 3003, 3006}));
}

// Resizes a picture in one step, rows before columns.
Pixels by_rows_first(const Pixels& pixels, const RenderPlan& plan,
                     int channels) {
  const int height = plan.crop.height, width = plan.crop.width;
  const Axis rows(Filter::kLanczos, height, plan.height, 0, plan.height);
  const Axis columns(Filter::kLanczos, width, plan.width, 0, plan.width);
  const auto bytes = static_cast<std::size_t>(channels * width);
  const auto out_bytes = static_cast<std::size_t>(channels * plan.width);
  Pixels in(pixels);
  in.resize(pixels.size() + bytes + 16);
  Pixels line(bytes + 16), wide(static_cast<std::size_t>(4 * width) + 99);
  Pixels made(out_bytes + 4), out;
  for (int i = 0; i < plan.height; ++i) {
    resize_rows(rows, i, in.data(), 0, bytes, bytes, line.data());
    for (std::size_t at = 0; at < bytes; ++at) {
      const auto step = static_cast<std::size_t>(channels);
      wide[at / step * 4 + at % step] = line[at];
    }
    resize_columns(columns, wide.data(), channels, false, made.data());
    out.insert(out.end(), made.begin(), made.end() - 4);
  }
  return out;
}

// Returns the part of a picture that is in the output, flipped if requested.
Pixels part_of(const Pixels& whole, const Layout& layout,
               const RenderPlan& plan) {
  Pixels out;
  for (int y = plan.top; y < plan.top + layout.height; ++y) {
    for (int x = 0; x < layout.width; ++x) {
      const int from = plan.left + (plan.flip ? layout.width - 1 - x : x);
      const bool outside =
          y < 0 || y >= plan.height || from < 0 || from >= plan.width;
      for (int c = 0; c < layout.channels; ++c) {
        const int at = (y * plan.width + from) * layout.channels + c;
        out.push_back(outside ? 0 : whole[static_cast<std::size_t>(at)]);
      }
    }
  }
  return out;
}

void test_rows_resized_first_if_height_shrinks_more() {
  constexpr int sizes[][4] = {{90, 40, 20, 30}, {50, 9, 49, 60},
                              {33, 5, 2, 1},    {300, 4, 7, 3},
                              {9, 7, 5, 6},     {64, 64, 8, 40}};
  for (const auto& [height, width, rows, columns] : sizes) {
    CHECK(gristmill::rows_come_first(height, width, rows, columns));
    for (int channels = 1; channels <= 3; ++channels) {
      Pixels pixels(static_cast<std::size_t>(height * width * channels));
      std::mt19937 random(static_cast<unsigned>(height));
      for (auto& value : pixels) value = static_cast<std::uint8_t>(random());
      RenderPlan plan = whole(height, width);
      plan.height = rows;
      plan.width = columns;
      const Pixels expected = by_rows_first(pixels, plan, channels);
      for (const int cut : {0, 1, -1}) {
        Layout layout;
        layout.channels = channels;
        layout.height = std::max(rows - cut, 1);
        layout.width = std::max(columns - 2 * cut, 1);
        plan.top = plan.left = cut;
        plan.flip = cut != 0;
        RenderOptions options;
        options.filter = Filter::kLanczos;
        Renderer renderer(layout, options);
        // The second time uses memory that is not empty.
        for (int i = 0; i < 2; ++i) {
          Pixels out(layout.picture_bytes(), 77);
          CHECK(renderer
                    .render(in_memory(pixels, height, width), plan,
                            reinterpret_cast<std::byte*>(out.data()))
                    .ok());
          CHECK(out == part_of(expected, layout, plan));
        }
      }
    }
  }
}

void test_columns_resized_first_otherwise() {
  constexpr int sizes[][4] = {
      {90, 90, 20, 20}, {20, 90, 90, 20}, {40, 60, 20, 50}, {8, 8, 8, 8}};
  for (const auto& [height, width, rows, columns] : sizes) {
    CHECK(!gristmill::rows_come_first(height, width, rows, columns));
  }
}

struct Batch {
  std::vector<File> files;
  std::vector<Picture> pictures;
  std::vector<RenderPlan> plans;
  Layout layout;
  RenderOptions options;

  Batch() {
    layout.height = 24;
    layout.width = 20;
    for (int i = 0; i < 40; ++i) {
      const std::size_t kind = static_cast<std::size_t>(i) % std::size(kKinds);
      files.push_back(gristmill::some_jpeg(40 + i, 50, kKinds[kind]));
      RenderPlan plan = whole(24, 20);
      plan.crop = {i / 2, 3, 30, 40};
      plan.flip = i % 2 != 0;
      plans.push_back(plan);
    }
    for (const File& file : files) pictures.emplace_back().file = file;
  }

  Pixels render(std::size_t threads, std::size_t& done, Status& status) const {
    Pixels out(layout.picture_bytes() * pictures.size());
    done =
        render_all(layout, options, pictures, plans,
                   reinterpret_cast<std::byte*>(out.data()), threads, status);
    return out;
  }
};

void test_threads_render_same_pictures() {
  const Batch batch;
  std::size_t done = 0;
  Status status;
  const Pixels one = batch.render(1, done, status);
  CHECK(status.ok());
  CHECK_EQ(done, batch.pictures.size());
  for (const std::size_t threads : {2, 5, 100}) {
    CHECK(batch.render(threads, done, status) == one);
    CHECK(status.ok());
  }
}

void test_error_has_first_bad_picture() {
  Batch batch;
  batch.pictures[17].file = batch.pictures[17].file.first(400);
  batch.pictures[23].file = {};
  batch.plans[31].crop.top = 1000;
  for (const std::size_t threads : {1, 2, 5}) {
    std::size_t done = 0;
    Status status;
    batch.render(threads, done, status);
    CHECK_EQ(done, 17u);
    CHECK(status.code() == Code::kInvalidArgument);
  }
}

void test_crop_outside_picture_is_error() {
  const Pixels pixels(6);
  Layout layout;
  layout.height = layout.width = layout.channels = 1;
  Renderer renderer(layout, RenderOptions{});
  std::byte out{};
  for (const gristmill::Box& box :
       {gristmill::Box{-1, 0, 1, 1}, gristmill::Box{0, 0, 3, 1},
        gristmill::Box{0, 0, 1, 4}, gristmill::Box{0, 0, 0, 1},
        gristmill::Box{2, 0, 1, 1},
        gristmill::Box{RenderPlan::kMaxLength, 0, RenderPlan::kMaxLength, 1}}) {
    RenderPlan plan = whole(1, 1);
    plan.crop = box;
    CHECK(!renderer.render(in_memory(pixels, 2, 3), plan, &out).ok());
  }
}

}  // namespace

int main() {
  test_orientations_equal_exif();
  test_padding_is_zero_and_flipped();
  test_table_and_layout_are_applied();
  test_rows_resized_first_if_height_shrinks_more();
  test_columns_resized_first_otherwise();
  test_threads_render_same_pictures();
  test_error_has_first_bad_picture();
  test_crop_outside_picture_is_error();
}
