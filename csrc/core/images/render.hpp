// A Renderer converts files or pixels to pictures of one layout.  It decodes
// the needed part, turns, crops, resizes and flips it, looks up values in the
// layout's table, and writes them in the layout's order.
//
// A row belongs to the crop, a line to the output.
//
// Thread safety: one thread at a time may use a Renderer.  render_all() creates
// one per thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.hpp"
#include "core/images/box.hpp"
#include "core/images/layout.hpp"
#include "core/images/picture_rows.hpp"
#include "core/images/resize.hpp"

namespace gristmill {

// The geometry of one output picture.
struct RenderPlan {
  // The largest length in pixels, so that sums of lengths do not overflow.
  static constexpr int kMaxLength = 1 << 28;

  Box crop;        // A rectangle of the turned picture.
  int height = 0;  // The size to which the crop is resized.
  int width = 0;
  // The position of the output in the resized crop.  The output is 0 outside of
  // the crop.
  int top = 0;
  int left = 0;
  bool flip = false;    // Whether to flip the output from left to right.
  int orientation = 1;  // EXIF's; the picture is turned first.
};

// Options for all pictures of a batch.
struct RenderOptions {
  Filter filter = Filter::kBilinear;
  bool draft = false;  // JPEG files may be decoded at 1/2, 1/4 or 1/8.
};

class Renderer {
 public:
  Renderer(const Layout& layout, const RenderOptions& options);

  // Writes a picture to `out`.  On failure, `out` may be partly written.
  // REQUIRES: the plan's height and width are at least 1; its numbers are at
  // most kMaxLength, `top` and `left` at least the negative of that.
  Status render(const Picture& picture, const RenderPlan& plan, std::byte* out);

 private:
  // The rows [first, end) in `buffered_rows_`, from which the next line of the
  // output is made.  Row 0 is the first row that the output needs.
  struct Window {
    int first = 0;
    int end = 0;
    int capacity = 0;        // In rows.
    std::size_t bytes = 0;   // The size of a row.
    std::size_t stride = 0;  // The distance between rows, in bytes.
  };

  // For columns before rows: fills `buffered_rows_` with all needed rows, in
  // the width of the output.
  Status resize_all_columns(const Axis& columns, const Axis& rows,
                            const Box& crop, int shrink, bool flip);

  // For rows before columns: resize_line() writes line `i` of the output to
  // `resized_crop_line_`.  Call it in the order of the lines, after
  // start_window().
  Status start_window(const Axis& columns, const Axis& rows, const Box& crop,
                      int shrink);
  Status resize_line(const Axis& columns, const Axis& rows, int i, bool flip);
  // Reads rows up to `end`.  Rows before `start` may be dropped.
  Status move_window(int start, int end);

  const Layout layout_;
  const RenderOptions options_;
  const std::vector<std::uint8_t> zeros_;  // A line of the output.
  PictureRows rows_;
  // Either all needed rows in the width of the output, or the window.
  std::vector<std::uint8_t> buffered_rows_;
  std::vector<std::uint8_t> line_;  // A line of the output.
  Window window_;
  // A line of the output before its columns are resized, so in the width of the
  // crop.
  std::vector<std::uint8_t> full_width_line_;
  // The part of a line inside of the crop.
  std::vector<std::uint8_t> resized_crop_line_;
};

// Renders picture k to place k of `out`, with at most `threads` threads.
// Returns the number of pictures, or the index of the first one that failed,
// and sets `status` to the error.  REQUIRES: as render(); as many plans as
// pictures; threads > 0.
std::size_t render_all(const Layout& layout, const RenderOptions& options,
                       std::span<const Picture> pictures,
                       std::span<const RenderPlan> plans, std::byte* out,
                       std::size_t threads, Status& status);

}  // namespace gristmill
