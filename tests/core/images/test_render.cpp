// Whole renderings: turned, padded, laid out, on threads.
#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "core/check.hpp"
#include "core/images/jpeg_samples.hpp"
#include "core/images/render.hpp"

namespace {

using gristmill::Code;
using gristmill::File;
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

// A picture of 2 rows, a b c and d e f, in each of EXIF's orientations.
void orientations_are_those_of_exif() {
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

void what_lies_outside_is_zero_and_flips_as_well() {
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

void values_are_looked_up_and_laid_out() {
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

void threads_render_the_same_pictures() {
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

void the_first_bad_picture_is_named() {
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

void a_crop_must_lie_within_the_picture() {
  const Pixels pixels(6);
  Layout layout;
  layout.height = layout.width = layout.channels = 1;
  Renderer renderer(layout, RenderOptions{});
  std::byte out{};
  for (const gristmill::Box& box :
       {gristmill::Box{-1, 0, 1, 1}, gristmill::Box{0, 0, 3, 1},
        gristmill::Box{0, 0, 1, 4}, gristmill::Box{0, 0, 0, 1},
        gristmill::Box{2, 0, 1, 1},
        gristmill::Box{RenderPlan::kMostPixels, 0, RenderPlan::kMostPixels,
                       1}}) {
    RenderPlan plan = whole(1, 1);
    plan.crop = box;
    CHECK(!renderer.render(in_memory(pixels, 2, 3), plan, &out).ok());
  }
}

}  // namespace

int main() {
  orientations_are_those_of_exif();
  what_lies_outside_is_zero_and_flips_as_well();
  values_are_looked_up_and_laid_out();
  threads_render_the_same_pictures();
  the_first_bad_picture_is_named();
  a_crop_must_lie_within_the_picture();
}
