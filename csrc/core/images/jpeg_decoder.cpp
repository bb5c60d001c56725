#include "core/images/jpeg_decoder.hpp"

#include <setjmp.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <vector>

// Needs size_t and FILE before it.
#include <jpeglib.h>
// Needs jpeglib.h before it.
#include <jerror.h>

#ifndef JCS_EXTENSIONS
#error "This libjpeg is not libjpeg-turbo, which is needed."
#endif

namespace gristmill {
namespace {

// Encoders write fewer scans.  A small file may have thousands, and decoding
// each scan takes time for all pixels.
constexpr int kMaxScans = 500;

// The minimum number of columns to decode, so that chroma is interpolated as in
// the whole picture.  libjpeg interpolates very narrow rectangles differently.
constexpr int kMinColumns = 32;

// Returns true if a warning means that libjpeg has made up pixels.  Other
// warnings do not affect the picture.
bool is_damage_warning(int code) {
  return code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
         code == JWRN_MUST_RESYNC || code == JWRN_ARITH_BAD_CODE ||
         code == JWRN_JPEG_EOF;
}

// Returns true if the file ends with an end marker.
bool has_end_marker(std::span<const std::byte> file) {
  const std::size_t size = file.size();
  return size >= 2 && file[size - 2] == std::byte{0xFF} &&
         file[size - 1] == std::byte{JPEG_EOI};
}

}  // namespace

// The state of libjpeg; its callbacks find it by `client_data`.
struct JpegDecoder::State {
  jpeg_error_mgr errors{};
  jmp_buf error_jump{};
  jpeg_progress_mgr progress{};
  jpeg_decompress_struct jpeg{};
  std::span<const std::byte> file;
  std::vector<std::uint8_t> row;
  std::size_t box_offset = 0;  // Bytes in `row` before the rectangle.
  bool is_created = false;
  bool too_many_scans = false;

  // Runs `call`, which may call libjpeg.  It must not have variables with
  // destructors, because errors leave it by longjmp().
  template <class Call>
  Status run(Call call) {
    if (setjmp(error_jump) != 0) return error();
    call();
    return {};
  }

  Status error() {
    char text[JMSG_LENGTH_MAX];
    errors.format_message(reinterpret_cast<j_common_ptr>(&jpeg), text);
    const int code = errors.msg_code;
    jpeg_abort_decompress(&jpeg);
    if (too_many_scans) {
      return Status(Code::kInvalidArgument, "the JPEG file has more than ",
                    kMaxScans, " scans");
    }
    if (code == JERR_OUT_OF_MEMORY) {
      return Status(Code::kNoMemory, "libjpeg has no memory for a picture");
    }
    return Status(Code::kInvalidArgument,
                  "the JPEG file is damaged: ", static_cast<const char*>(text));
  }

  static State& of(j_common_ptr jpeg) {
    return *static_cast<State*>(jpeg->client_data);
  }
  [[noreturn]] static void on_error(j_common_ptr jpeg) {
    longjmp(of(jpeg).error_jump, 1);
  }
  static void on_message(j_common_ptr jpeg, int level) {
    if (level < 0 && is_damage_warning(jpeg->err->msg_code)) on_error(jpeg);
  }
  static void count_scans(j_common_ptr jpeg) {
    const auto* const decoding = reinterpret_cast<j_decompress_ptr>(jpeg);
    if (decoding->input_scan_number <= kMaxScans) return;
    of(jpeg).too_many_scans = true;
    on_error(jpeg);
  }

  void create() {
    jpeg.err = jpeg_std_error(&errors);
    jpeg.client_data = this;
    errors.error_exit = &on_error;
    errors.emit_message = &on_message;
    progress.progress_monitor = &count_scans;
    jpeg_create_decompress(&jpeg);
    is_created = true;
    jpeg.progress = &progress;
  }
};

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {}

JpegDecoder::~JpegDecoder() {
  if (state_->is_created) jpeg_destroy_decompress(&state_->jpeg);
}

int JpegDecoder::height() const noexcept {
  return static_cast<int>(state_->jpeg.image_height);
}

int JpegDecoder::width() const noexcept {
  return static_cast<int>(state_->jpeg.image_width);
}

Status JpegDecoder::open(std::span<const std::byte> file) {
  State& state = *state_;
  state.file = file;
  state.too_many_scans = false;
  return state.run([&] {
    if (!state.is_created) state.create();
    jpeg_abort_decompress(&state.jpeg);  // The last file may be unfinished.
    jpeg_mem_src(&state.jpeg,
                 reinterpret_cast<const unsigned char*>(file.data()),
                 static_cast<unsigned long>(file.size()));
    jpeg_read_header(&state.jpeg, TRUE);
  });
}

Status JpegDecoder::start(const Box& box, int shrink, std::size_t slack) {
  State& state = *state_;
  const int columns = (width() + shrink - 1) / shrink;
  assert(box.top >= 0 && box.left >= 0 && box.height >= 1 && box.width >= 1);
  assert(box.height <= (height() + shrink - 1) / shrink - box.top);
  assert(box.width <= columns - box.left);
  // Decodes one more column on each side, since the chroma of the outer columns
  // depends on it.  Decodes all columns of a shrunk picture, since the pixels
  // of parts differ for some files.
  const int right =
      shrink == 1 ? std::min(box.left + box.width + 1, columns) : columns;
  const int left =
      shrink == 1 ? std::max(std::min(box.left - 1, right - kMinColumns), 0)
                  : 0;
  auto first_column = static_cast<JDIMENSION>(left);
  auto num_columns = static_cast<JDIMENSION>(
      std::min(std::max(right - left, kMinColumns), columns - left));
  TRY(state.run([&] {
    state.jpeg.scale_num = 1;
    state.jpeg.scale_denom = static_cast<unsigned>(shrink);
    state.jpeg.out_color_space = JCS_EXT_RGBX;
    jpeg_start_decompress(&state.jpeg);
    jpeg_crop_scanline(&state.jpeg, &first_column, &num_columns);
  }));
  // libjpeg has moved `first_column` to the start of a block.
  state.box_offset = 4 * (static_cast<std::size_t>(box.left) - first_column);
  state.row.resize(std::size_t{4} * state.jpeg.output_width + slack);
  return state.run([&] {
    if (box.top > 0) {
      jpeg_skip_scanlines(&state.jpeg, static_cast<JDIMENSION>(box.top));
    }
  });
}

Result<std::uint8_t*> JpegDecoder::next_row() {
  State& state = *state_;
  JSAMPROW row = state.row.data();
  TRY(state.run([&] { jpeg_read_scanlines(&state.jpeg, &row, 1); }));
  return row + state.box_offset;
}

Status JpegDecoder::finish() {
  State& state = *state_;
  if (has_end_marker(state.file)) {
    jpeg_abort_decompress(&state.jpeg);
    return {};
  }
  return state.run([&] {
    // Read the last row, because skipping all rows would not decode them.
    const JDIMENSION left =
        state.jpeg.output_height - state.jpeg.output_scanline;
    if (left > 1) jpeg_skip_scanlines(&state.jpeg, left - 1);
    JSAMPROW row = state.row.data();
    if (left > 0) jpeg_read_scanlines(&state.jpeg, &row, 1);
    jpeg_finish_decompress(&state.jpeg);
  });
}

}  // namespace gristmill
