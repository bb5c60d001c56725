// Binds core/images: checks the arrays, drops the GIL, passes bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/files/record_reader.hpp"
#include "core/images/jpeg_header.hpp"
#include "core/images/render.hpp"

namespace gristmill::bind {
namespace {

using Plans = py::array_t<std::int32_t, py::array::c_style>;

constexpr py::ssize_t kPlanNumbers = 10;
constexpr std::size_t kMostRenderThreads = 1024;

// A view of an object's bytes, which stay where they are as long as it lives.
class View {
 public:
  explicit View(py::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_ND) != 0) {
      throw py::error_already_set();
    }
  }
  View(View&& other) noexcept : view_(std::exchange(other.view_, {})) {}
  ~View() { PyBuffer_Release(&view_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  View& operator=(View&&) = delete;

  const Py_buffer* operator->() const { return &view_; }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf),
            static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

py::tuple image_header(const py::object& data) {
  const View view(data);
  auto read = read_jpeg_header(view.bytes());
  if (!read.ok()) raise_corrupt(read.status().message());
  const auto header = std::move(read).value();
  if (!header) return py::make_tuple("", 0, 0, 0, 1);
  return py::make_tuple("jpeg", header->height, header->width, header->channels,
                        header->orientation);
}

Layout layout_of(const py::array& out, const py::object& table, bool chw) {
  if (out.ndim() != 4 || !(out.flags() & py::array::c_style) ||
      !out.writeable()) {
    throw py::value_error(
        "out must be a writeable C-contiguous array of 4 dimensions");
  }
  Layout layout;
  layout.channels_first = chw;
  const auto side = [&](int axis) {
    if (out.shape(axis) < 1 || out.shape(axis) > RenderPlan::kMostPixels) {
      throw py::value_error("out has no pixels, or a side that is too long");
    }
    return static_cast<int>(out.shape(axis));
  };
  layout.channels = side(chw ? 1 : 3);
  layout.height = side(chw ? 2 : 1);
  layout.width = side(chw ? 3 : 2);
  layout.item_bytes = static_cast<std::size_t>(out.itemsize());
  if (layout.channels > 4) {
    throw py::value_error(
        concat("out has ", layout.channels, " channels, expected 1 to 4"));
  }
  if (table.is_none()) {
    if (!out.dtype().is(py::dtype::of<std::uint8_t>())) {
      throw py::value_error("without a table, out must have dtype uint8");
    }
    return layout;
  }
  const auto values = py::cast<py::array>(table);
  if (values.ndim() != 2 || values.shape(0) != layout.channels ||
      values.shape(1) != 256 || !values.dtype().equal(out.dtype()) ||
      !(values.flags() & py::array::c_style)) {
    throw py::value_error(
        "table must be a C-contiguous array of shape (channels, 256) and out's "
        "dtype");
  }
  if (layout.item_bytes != 1 && layout.item_bytes != 2 &&
      layout.item_bytes != 4) {
    throw py::value_error("out's items must have 1, 2 or 4 bytes");
  }
  layout.table = static_cast<const std::byte*>(values.data());
  return layout;
}

RenderPlan plan_of(const std::int32_t* numbers) {
  RenderPlan plan;
  plan.crop = {numbers[0], numbers[1], numbers[2], numbers[3]};
  plan.height = numbers[4];
  plan.width = numbers[5];
  plan.top = numbers[6];
  plan.left = numbers[7];
  plan.flip = numbers[8] != 0;
  plan.orientation = numbers[9];
  constexpr int kMost = RenderPlan::kMostPixels;
  const bool in_range = std::all_of(numbers, numbers + 8, [](int number) {
    return number >= -kMost && number <= kMost;
  });
  if (!in_range || plan.height < 1 || plan.width < 1 || plan.orientation < 1 ||
      plan.orientation > 8) {
    throw py::value_error("a plan has a size or an orientation out of range");
  }
  return plan;
}

Picture picture_of(const View& view, int channels) {
  Picture picture;
  if (view->itemsize != 1) {
    throw py::value_error("an image has items of more than a byte");
  }
  if (view->ndim == 1) {
    picture.file = view.bytes();
    return picture;
  }
  if (view->ndim != 3 || view->shape[2] != channels) {
    throw py::value_error(
        concat("an image is neither a file nor an array of shape (H, W, ",
               channels, ")"));
  }
  if (view->shape[0] > RenderPlan::kMostPixels ||
      view->shape[1] > RenderPlan::kMostPixels) {
    throw py::value_error("an image has a side that is too long");
  }
  picture.pixels = static_cast<const std::uint8_t*>(view->buf);
  picture.height = static_cast<int>(view->shape[0]);
  picture.width = static_cast<int>(view->shape[1]);
  return picture;
}

void render_images(const py::list& images, const Plans& plans, py::array& out,
                   int filter, const py::object& table, bool chw, bool draft,
                   std::size_t threads) {
  const Layout layout = layout_of(out, table, chw);
  const auto count = static_cast<py::ssize_t>(images.size());
  if (out.shape(0) != count || plans.ndim() != 2 || plans.shape(0) != count ||
      plans.shape(1) != kPlanNumbers) {
    throw py::value_error(
        "there must be one image and one plan of 10 numbers for each row of "
        "out");
  }
  if (filter < 0 || filter > static_cast<int>(Filter::kLanczos)) {
    throw py::value_error("filter must be between 0 and 5");
  }
  if (threads < 1 || threads > kMostRenderThreads) {
    throw py::value_error("threads must be between 1 and 1024");
  }
  std::vector<View> views;
  std::vector<Picture> pictures;
  std::vector<RenderPlan> numbers;
  views.reserve(images.size());
  for (py::ssize_t i = 0; i < count; ++i) {
    views.emplace_back(images[static_cast<std::size_t>(i)]);
    pictures.push_back(picture_of(views.back(), layout.channels));
    numbers.push_back(plan_of(plans.data(i, 0)));
  }
  const RenderOptions options{static_cast<Filter>(filter), draft};
  auto* const to = static_cast<std::byte*>(out.mutable_data());
  Status status;
  const std::size_t done = unlocked([&] {
    return render_all(layout, options, pictures, numbers, to, threads, status);
  });
  if (status.code() == Code::kInvalidArgument) {
    raise_corrupt(status.message(), done);
  }
  check(status);
}

}  // namespace

constexpr const char* kRenderDoc =
    R"(Decodes, turns, crops, resizes, flips and lays out n pictures.

Args:
    images: JPEG files, or C-contiguous uint8 pixels of shape (H, W, C).
    plans: int64 of shape (n, 10): top, left, height and width of the crop of
        the turned picture; height and width to resize it to; top and left of
        the output in that, zeros around it; 1 to flip left and right; the
        orientation.
    out: Shape (n, H, W, C), or (n, C, H, W) with chw; C is 1 to 4.  The fourth
        channel of a JPEG file is 255, a single one is the luminance.
    filter: Pillow's: 0 nearest, 1 box, 2 bilinear, 3 hamming, 4 bicubic,
        5 lanczos.
    table: Shape (C, 256), out's dtype: the output for each value of a pixel.
    draft: Decodes JPEG files at 1/2, 1/4 or 1/8 if that is not smaller than the
        crop is resized to.
    threads: 1 to 1024.

Raises:
    CorruptRecord: A file is damaged, or a crop exceeds its picture; position is
        the number of the image.)";

void images(py::module_& m) {
  m.def(
      "image_header", &image_header, "data"_a,
      "Returns (format, height, width, channels, orientation) of a picture as\n"
      "stored, before it is turned by its EXIF or XMP orientation, 1 to 8.  "
      "The\n"
      "format is \"jpeg\", or \"\" if render_images does not read the file.");
  m.def("render_images", &render_images, "images"_a, "plans"_a.noconvert(),
        "out"_a.noconvert(), py::kw_only(), "filter"_a = 2,
        "table"_a = py::none(), "chw"_a = false, "draft"_a = false,
        "threads"_a = 1, kRenderDoc);
}

}  // namespace gristmill::bind
