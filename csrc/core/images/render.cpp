#include "core/images/render.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "core/base/pool.hpp"

namespace gristmill {
namespace {

// The stride of resized lines is a multiple of this, and this many bytes follow
// the last line, so that whole vectors can be read and written.
constexpr std::size_t kVectorBytes = 16;

// PictureRows returns pixels of 4 bytes for any number of channels.
constexpr std::size_t kRowPixelBytes = 4;
// resize_columns() may write this many bytes after its output.
constexpr int kColumnSlackBytes = 4;

std::size_t stride_of(std::size_t bytes) {
  return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
}

// The rows or columns [first, last) of the resized crop that the output shows.
struct Part {
  int first;
  int last;
};

Part visible_part(int begin, int length, int size) {
  return {std::max(begin, 0), std::min(begin + length, size)};
}

// Returns the largest of 8, 4, 2 and 1 by which the crop can shrink without
// becoming smaller than its resized size.
int max_shrink_of(const RenderPlan& plan) {
  const int ratio =
      std::min(plan.crop.height / plan.height, plan.crop.width / plan.width);
  return ratio >= 8 ? 8 : ratio >= 4 ? 4 : ratio >= 2 ? 2 : 1;
}

// Returns the pixels that a box covers, at least in part, in a picture of
// 1 / `shrink` of the size.
Box shrink_box(const Box& box, int shrink) {
  const auto round_up = [&](int end) { return (end + shrink - 1) / shrink; };
  const int top = box.top / shrink;
  const int left = box.left / shrink;
  return {top, left, round_up(box.top + box.height) - top,
          round_up(box.left + box.width) - left};
}

// Returns the part of a crop whose pixels the two axes need.
Box needed_box(const Axis& columns, const Axis& rows, const Box& crop) {
  return {crop.top + rows.begin(), crop.left + columns.begin(),
          rows.end() - rows.begin(), columns.end() - columns.begin()};
}

Status check_crop(const Box& crop, const PictureRows& rows) {
  if (crop.top >= 0 && crop.left >= 0 && crop.height >= 1 && crop.width >= 1 &&
      crop.height <= rows.height() - crop.top &&
      crop.width <= rows.width() - crop.left) {
    return {};
  }
  return Status(Code::kInvalidArgument, "the crop of ", crop.height, " x ",
                crop.width, " pixels at ", crop.top, ", ", crop.left,
                " is not within the picture, which has ", rows.height(), " x ",
                rows.width());
}

}  // namespace

Renderer::Renderer(const Layout& layout, const RenderOptions& options)
    : layout_(layout), options_(options), zeros_(layout.line_values()) {}

Status Renderer::render(const Picture& picture, const RenderPlan& plan,
                        std::byte* out) {
  TRY(rows_.open(picture, layout_.channels, plan.orientation));
  TRY(check_crop(plan.crop, rows_));
  const Part x = visible_part(plan.left, layout_.width, plan.width);
  const Part y = visible_part(plan.top, layout_.height, plan.height);
  const auto write_zeros = [&](int from, int to) {
    for (int i = from; i < to; ++i) put_line(layout_, zeros_.data(), i, out);
  };
  if (x.first >= x.last || y.first >= y.last) {
    write_zeros(0, layout_.height);
    return {};
  }
  const int shrink =
      options_.draft && rows_.can_shrink() ? max_shrink_of(plan) : 1;
  const Box crop = shrink_box(plan.crop, shrink);
  const Axis columns(options_.filter, crop.width, plan.width, x.first, x.last);
  const Axis rows(options_.filter, crop.height, plan.height, y.first, y.last);
  const bool rows_first =
      !rows.is_copy() && !columns.is_copy() &&
      rows_come_first(crop.height, crop.width, plan.height, plan.width);
  if (rows_first) {
    TRY(start_window(columns, rows, crop, shrink));
  } else {
    TRY(resize_all_columns(columns, rows, crop, shrink, plan.flip));
  }
  const auto channels = static_cast<std::size_t>(layout_.channels);
  const std::size_t bytes = channels * static_cast<std::size_t>(columns.size());
  // The position of the visible part in the output.
  const int left =
      plan.flip ? plan.left + layout_.width - x.last : x.first - plan.left;
  const int top = y.first - plan.top;
  const bool writes_to_output =
      layout_.is_plain() && columns.size() == layout_.width;
  line_.assign(layout_.line_values(), 0);
  write_zeros(0, top);
  for (int i = 0; i < rows.size(); ++i) {
    std::uint8_t* const line =
        writes_to_output
            ? reinterpret_cast<std::uint8_t*>(out) +
                  static_cast<std::size_t>(top + i) * bytes
            : line_.data() + channels * static_cast<std::size_t>(left);
    if (rows_first) {
      TRY(resize_line(columns, rows, i, plan.flip));
      std::memcpy(line, resized_crop_line_.data(), bytes);
    } else {
      resize_rows(rows, i, buffered_rows_.data(), 0, stride_of(bytes), bytes,
                  line);
    }
    if (!writes_to_output) put_line(layout_, line_.data(), top + i, out);
  }
  write_zeros(top + rows.size(), layout_.height);
  // resize_all_columns() has already finished the picture.
  return rows_first ? rows_.finish() : Status();
}

Status Renderer::start_window(const Axis& columns, const Axis& rows,
                              const Box& crop, int shrink) {
  const Box needed = needed_box(columns, rows, crop);
  window_ = Window();
  window_.bytes = kRowPixelBytes * static_cast<std::size_t>(needed.width);
  window_.stride = stride_of(window_.bytes);
  // Twice the rows that a line needs, so that not every line moves rows.
  window_.capacity = 2 * (2 * rows.pairs());
  const auto capacity = static_cast<std::size_t>(window_.capacity);
  // resize_rows() may read one row after the last.
  buffered_rows_.resize(window_.stride * (capacity + 1) + kVectorBytes);
  full_width_line_.resize(window_.stride + slack_of(columns));
  resized_crop_line_.resize(static_cast<std::size_t>(
      layout_.channels * columns.size() + kColumnSlackBytes));
  return rows_.start(needed, shrink, slack_of(columns));
}

Status Renderer::resize_line(const Axis& columns, const Axis& rows, int i,
                             bool flip) {
  TRY(move_window(rows.starts()[i],
                  std::min(rows.starts()[i] + 2 * rows.pairs(),
                           rows.end() - rows.begin())));
  resize_rows(rows, i, buffered_rows_.data(), window_.first, window_.stride,
              window_.bytes, full_width_line_.data());
  resize_columns(columns, full_width_line_.data(), layout_.channels, flip,
                 resized_crop_line_.data());
  return {};
}

Status Renderer::move_window(int start, int end) {
  const auto offset = [&](int line) {
    return static_cast<std::size_t>(line - window_.first) * window_.stride;
  };
  if (end - window_.first > window_.capacity) {
    const int num_kept_rows = std::max(window_.end - start, 0);
    std::memmove(buffered_rows_.data(),
                 buffered_rows_.data() + offset(window_.end - num_kept_rows),
                 static_cast<std::size_t>(num_kept_rows) * window_.stride);
    window_.first = window_.end - num_kept_rows;
  }
  for (; window_.end < end; ++window_.end) {
    const std::uint8_t* const row = TRY(rows_.next());
    if (window_.end < start) {
      window_.first = window_.end + 1;  // No output line needs this row.
      continue;
    }
    std::memcpy(buffered_rows_.data() + offset(window_.end), row,
                window_.bytes);
  }
  return {};
}

Status Renderer::resize_all_columns(const Axis& columns, const Axis& rows,
                                    const Box& crop, int shrink, bool flip) {
  const Box needed = needed_box(columns, rows, crop);
  const std::size_t stride =
      stride_of(static_cast<std::size_t>(layout_.channels) *
                static_cast<std::size_t>(columns.size()));
  buffered_rows_.resize(stride * static_cast<std::size_t>(needed.height) +
                        kVectorBytes);
  TRY(rows_.start(needed, shrink, slack_of(columns)));
  for (int i = 0; i < needed.height; ++i) {
    const std::uint8_t* const row = TRY(rows_.next());
    resize_columns(columns, row, layout_.channels, flip,
                   &buffered_rows_[stride * static_cast<std::size_t>(i)]);
  }
  return rows_.finish();
}

namespace {

// Distributes pictures to threads.  Any thread may call any method.
class RenderQueue {
 public:
  RenderQueue(const Layout& layout, const RenderOptions& options,
              std::span<const Picture> pictures,
              std::span<const RenderPlan> plans, std::byte* out)
      : layout_(layout),
        options_(options),
        pictures_(pictures),
        plans_(plans),
        out_(out),
        end_(pictures.size()) {}

  // Renders pictures until there are none left.
  void work() noexcept;

  // Returns the index of the first picture that failed, or their number.
  [[nodiscard]] std::size_t end() const noexcept {
    return end_.load(std::memory_order_relaxed);
  }

  [[nodiscard]] Status status() const {
    const MutexLock lock(mutex_);
    return status_;
  }

 private:
  // Records a failure, if no earlier picture has failed.  No picture after it
  // is started anymore; the pictures before it have been started.
  void fail(std::size_t i, const Status& status);

  const Layout& layout_;
  const RenderOptions& options_;
  const std::span<const Picture> pictures_;
  const std::span<const RenderPlan> plans_;
  std::byte* const out_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> end_;
  mutable Mutex mutex_;
  Status status_ GUARDED_BY(mutex_);
};

void RenderQueue::work() noexcept {
  std::size_t i = 0;
  try {
    Renderer renderer(layout_, options_);
    for (;;) {
      i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= end()) return;
      const Status status = renderer.render(pictures_[i], plans_[i],
                                            out_ + i * layout_.picture_bytes());
      if (!status.ok()) fail(i, status);
    }
  } catch (const std::bad_alloc&) {
    fail(i, Status(Code::kNoMemory, "no memory to render a picture"));
  }
}

void RenderQueue::fail(std::size_t i, const Status& status) {
  const MutexLock lock(mutex_);
  if (i >= end()) return;
  end_.store(i, std::memory_order_relaxed);
  status_ = status;
}

}  // namespace

std::size_t render_all(const Layout& layout, const RenderOptions& options,
                       std::span<const Picture> pictures,
                       std::span<const RenderPlan> plans, std::byte* out,
                       std::size_t threads, Status& status) {
  RenderQueue queue(layout, options, pictures, plans, out);
  threads = std::min(threads, pictures.size());
  if (threads > 1) {
    Pool pool(threads - 1);
    TaskGroup group;
    for (std::size_t i = 1; i < threads; ++i) {
      pool.run(group, [&] { queue.work(); });
    }
    queue.work();
    static_cast<void>(group.wait());
  } else {
    queue.work();
  }
  status = queue.status();
  return queue.end();
}

}  // namespace gristmill
