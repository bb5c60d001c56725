// Binds core/images: checks the arrays, releases the GIL, passes bytes.
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

// Numbers in a plan, see kRenderDoc.
constexpr py::ssize_t kPlanNumbers = 10;
constexpr std::size_t kMaxRenderThreads = 1024;

// The buffer of a Python object, which must be C-contiguous.  Its bytes are
// valid and do not move while this exists.
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
        "out must be a writeable C-contiguous array with 4 dimensions");
  }
  Layout layout;
  layout.channels_first = chw;
  const auto side = [&](int axis) {
    if (out.shape(axis) < 1 || out.shape(axis) > RenderPlan::kMaxLength) {
      throw py::value_error(concat("out must have sides of 1 to ",
                                   RenderPlan::kMaxLength, ", got ",
                                   out.shape(axis), " on axis ", axis));
    }
    return static_cast<int>(out.shape(axis));
  };
  layout.channels = side(chw ? 1 : 3);
  layout.height = side(chw ? 2 : 1);
  layout.width = side(chw ? 3 : 2);
  layout.item_bytes = static_cast<std::size_t>(out.itemsize());
  if (layout.channels > 4) {
    throw py::value_error(
        concat("out must have 1 to 4 channels, got ", layout.channels));
  }
  if (table.is_none()) {
    if (!out.dtype().is(py::dtype::of<std::uint8_t>())) {
      throw py::value_error("out must have dtype uint8 if table is None, got " +
                            py::str(out.dtype()).cast<std::string>());
    }
    return layout;
  }
  const auto values = py::cast<py::array>(table);
  if (values.ndim() != 2 || values.shape(0) != layout.channels ||
      values.shape(1) != 256 || !values.dtype().equal(out.dtype()) ||
      !(values.flags() & py::array::c_style)) {
    throw py::value_error(
        "table must be a C-contiguous array of shape (channels, 256) with the "
        "dtype of out");
  }
  if (layout.item_bytes != 1 && layout.item_bytes != 2 &&
      layout.item_bytes != 4) {
    throw py::value_error(concat("out must have items of 1, 2 or 4 bytes, got ",
                                 layout.item_bytes));
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
  constexpr int kMaxNumber = RenderPlan::kMaxLength;
  const bool in_range = std::all_of(numbers, numbers + 8, [](int number) {
    return number >= -kMaxNumber && number <= kMaxNumber;
  });
  if (!in_range || plan.height < 1 || plan.width < 1 || plan.orientation < 1 ||
      plan.orientation > 8) {
    throw py::value_error(concat(
        "a plan must have numbers of at most ", kMaxNumber,
        ", a height and width of at least 1, and an orientation of 1 to 8; got "
        "height ",
        plan.height, ", width ", plan.width, ", orientation ",
        plan.orientation));
  }
  return plan;
}

Picture picture_of(const View& view, int channels) {
  Picture picture;
  if (view->itemsize != 1) {
    throw py::value_error(
        concat("an image must have items of 1 byte, got ", view->itemsize));
  }
  if (view->ndim == 1) {
    picture.file = view.bytes();
    return picture;
  }
  if (view->ndim != 3 || view->shape[2] != channels) {
    throw py::value_error(
        concat("an image must be the bytes of a file or an array of shape (H, "
               "W, ",
               channels, ")"));
  }
  if (view->shape[0] > RenderPlan::kMaxLength ||
      view->shape[1] > RenderPlan::kMaxLength) {
    throw py::value_error(concat("an image must have sides of at most ",
                                 RenderPlan::kMaxLength, ", got ",
                                 view->shape[0], " x ", view->shape[1]));
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
        concat("images and plans must have one entry, and a plan 10 numbers, "
               "for each of the ",
               out.shape(0), " rows of out"));
  }
  if (filter < 0 || filter > static_cast<int>(Filter::kLanczos)) {
    throw py::value_error(
        concat("filter must be between 0 and 5, got ", filter));
  }
  if (threads < 1 || threads > kMaxRenderThreads) {
    throw py::value_error(concat("threads must be between 1 and ",
                                 kMaxRenderThreads, ", got ", threads));
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
  const std::size_t first_failed = unlocked([&] {
    return render_all(layout, options, pictures, numbers, to, threads, status);
  });
  if (status.code() == Code::kInvalidArgument) {
    raise_corrupt(status.message(), first_failed);
  }
  check(status);
}

}  // namespace

constexpr const char* kRenderDoc =
    R"(Decode, turn, crop, resize and flip n pictures, and write them to out.

Args:
    images: JPEG files, or C-contiguous uint8 pixels of shape (H, W, C).
    plans: int32 of shape (n, 10), a row for each image: top, left, height and
        width of the crop of the turned picture; height and width of the resized
        crop; top and left of the output in it, with zeros outside of it; 1 to
        flip left and right, else 0; the orientation, 1 to 8.
    out: Shape (n, H, W, C), or (n, C, H, W) with chw; C is 1 to 4.  A JPEG file
        is converted to luminance if C is 1; its fourth channel is 255.
    filter: A filter of Pillow: 0 nearest, 1 box, 2 bilinear, 3 hamming,
        4 bicubic, 5 lanczos.
    table: Shape (C, 256), dtype of out: the output for each pixel value.  None
        writes the pixel values.
    chw: Whether the channels come before the rows in out.
    draft: Whether to decode JPEG files at 1/2, 1/4 or 1/8 of their size if the
        decoded crop is at least as large as the resized crop.
    threads: Number of threads, 1 to 1024.

Raises:
    CorruptRecord: A file is damaged, or a crop exceeds its picture.  position is
        the index of the image.
    ValueError: An argument has a wrong shape, dtype or range.)";

void images(py::module_& m) {
  m.def(
      "image_header", &image_header, "data"_a,
      "Return (format, height, width, channels, orientation) of a picture as\n"
      "stored.  orientation is that of EXIF or XMP, 1 to 8, and is not yet\n"
      "applied.  format is \"jpeg\", or \"\" if render_images cannot read the\n"
      "file.");
  m.def("render_images", &render_images, "images"_a, "plans"_a.noconvert(),
        "out"_a.noconvert(), py::kw_only(), "filter"_a = 2,
        "table"_a = py::none(), "chw"_a = false, "draft"_a = false,
        "threads"_a = 1, kRenderDoc);
}

}  // namespace gristmill::bind
