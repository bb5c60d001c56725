// A Renderer makes pictures of one layout of files or pixels: it decodes what
// is needed, turns, crops, resizes, flips, looks values up and lays them out.
//
// Thread safety: one thread at a time has a Renderer; render_all() is its own.
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

// What is to become of a picture.
struct RenderPlan {
  // The most that a length may be, so that sums of them are numbers too.
  static constexpr int kMostPixels = 1 << 28;

  Box crop;        // Of the picture that is turned.
  int height = 0;  // What the crop is resized to.
  int width = 0;
  int top = 0;  // Where the output lies in that; zeros are around it.
  int left = 0;
  bool flip = false;    // The output, from right to left.
  int orientation = 1;  // EXIF's; the picture is turned before all.
};

// How those of a batch are made.
struct RenderOptions {
  Filter filter = Filter::kBilinear;
  bool draft = false;  // JPEG files may be decoded at 1/2, 1/4 or 1/8.
};

class Renderer {
 public:
  Renderer(const Layout& layout, const RenderOptions& options);

  // Writes a picture to `out`; some of it, or nothing, where that fails.
  // REQUIRES: the plan's height and width are at least 1; its numbers are at
  // most kMostPixels, `top` and `left` at least the negative of that.
  Status render(const Picture& picture, const RenderPlan& plan, std::byte* out);

 private:
  // The rows that the next line of the output is made of, in `lines_`.
  struct Window {
    int first = 0;  // Counted from the first one that is needed.
    int end = 0;    // Behind the last one that was read.
    int capacity = 0;
    std::size_t bytes = 0;  // Of a row, and from one to the next.
    std::size_t stride = 0;
  };

  // Columns before rows: fills `lines_` with all lines, of the width of the
  // output.
  Status make_lines(const Axis& columns, const Axis& rows, const Box& crop,
                    int shrink, bool flip);

  // Rows before columns: line `i` of the output is made in `made_`, one after
  // another.
  Status start_window(const Axis& columns, const Axis& rows, const Box& crop,
                      int shrink);
  Status make_line(const Axis& columns, const Axis& rows, int i, bool flip);
  // Reads rows up to `end`.  Rows before `start` may be dropped.
  Status move_window(int start, int end);

  const Layout layout_;
  const RenderOptions options_;
  const std::vector<std::uint8_t> zeros_;  // A line of the output.
  PictureRows rows_;
  std::vector<std::uint8_t> lines_;  // As wide as the output, and as high as
                                     // what is cropped; or the window.
  std::vector<std::uint8_t> line_;   // Of the output.
  Window window_;
  std::vector<std::uint8_t> row_;   // As wide as what is cropped.
  std::vector<std::uint8_t> made_;  // The part of a line that has pixels.
};

// Renders picture k to place k of `out`, on as many threads as given at most.
// Returns the first that failed, of which `status` has the reason, or the
// number of pictures.  REQUIRES: as render(); as many plans as pictures;
// threads > 0.
std::size_t render_all(const Layout& layout, const RenderOptions& options,
                       std::span<const Picture> pictures,
                       std::span<const RenderPlan> plans, std::byte* out,
                       std::size_t threads, Status& status);

}  // namespace gristmill
