// JPEG files of every kind that libjpeg-turbo writes, and their pixels as it
// decodes whole files.
#pragma once

#include <jpeglib.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace gristmill {

struct Kind {
  const char* name;
  int across;  // Columns and rows of pixels that share a chroma sample.
  int down;
  bool gray = false;
  bool progressive = false;
  int restarts = 0;  // Blocks between restart markers.
};

inline constexpr Kind kKinds[] = {
    {"444", 1, 1},
    {"422", 2, 1},
    {"420", 2, 2},
    {"440", 1, 2},
    {"411", 4, 1},
    {"410", 4, 2},
    {"441", 1, 4},
    {"gray", 1, 1, true},
    {"444 progressive", 1, 1, false, true},
    {"420 progressive", 2, 2, false, true},
    {"gray progressive", 1, 1, true, true},
    {"444 with restarts", 1, 1, false, false, 1},
    {"420 with restarts", 2, 2, false, false, 3},
};

using File = std::vector<std::byte>;

// Noise on a gradient, so that all adjacent pixels differ.
inline std::vector<std::uint8_t> some_pixels(int height, int width,
                                             int channels) {
  std::mt19937 random(static_cast<unsigned>(height * 1000 + width));
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width * channels; ++x) {
      pixels.push_back(
          static_cast<std::uint8_t>((y * 3 + x * 2 + random() % 90) & 255));
    }
  }
  return pixels;
}

inline File jpeg_of(const std::vector<std::uint8_t>& pixels, int height,
                    int width, const Kind& kind) {
  jpeg_error_mgr errors;
  jpeg_compress_struct jpeg;
  jpeg.err = jpeg_std_error(&errors);  // Errors end the program.
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.input_components = kind.gray ? 1 : 3;
  jpeg.in_color_space = kind.gray ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 90, TRUE);
  jpeg.comp_info[0].h_samp_factor = kind.across;
  jpeg.comp_info[0].v_samp_factor = kind.down;
  if (kind.progressive) jpeg_simple_progression(&jpeg);
  jpeg.restart_interval = static_cast<unsigned>(kind.restarts);
  jpeg_start_compress(&jpeg, TRUE);
  const std::size_t length =
      static_cast<std::size_t>(width * jpeg.input_components);
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(&pixels[y * length]);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  const auto* const bytes = reinterpret_cast<const std::byte*>(memory);
  File file(bytes, bytes + size);
  std::free(memory);
  return file;
}

inline File some_jpeg(int height, int width, const Kind& kind) {
  return jpeg_of(some_pixels(height, width, kind.gray ? 1 : 3), height, width,
                 kind);
}

// The whole picture, at 1 / `shrink` of its size, as pixels of 4 bytes.
struct Decoded {
  int height = 0;
  int width = 0;
  std::vector<std::uint8_t> pixels;

  [[nodiscard]] const std::uint8_t* at(int y, int x) const {
    return &pixels[static_cast<std::size_t>(y * width + x) * 4];
  }
};

inline Decoded decode_whole(const File& file, int shrink = 1) {
  jpeg_error_mgr errors;
  jpeg_decompress_struct jpeg;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(file.data()),
               file.size());
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_EXT_RGBX;
  jpeg.scale_num = 1;
  jpeg.scale_denom = static_cast<unsigned>(shrink);
  jpeg_start_decompress(&jpeg);
  Decoded decoded{static_cast<int>(jpeg.output_height),
                  static_cast<int>(jpeg.output_width),
                  {}};
  const std::size_t length = std::size_t{4} * jpeg.output_width;
  decoded.pixels.resize(length * jpeg.output_height);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = &decoded.pixels[jpeg.output_scanline * length];
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
  return decoded;
}

}  // namespace gristmill
