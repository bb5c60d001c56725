// Decoded rectangles equal the same part of the whole picture, and damage is an
// error.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "core/check.hpp"
#include "core/images/jpeg_decoder.hpp"
#include "core/images/jpeg_samples.hpp"

namespace {

using gristmill::Box;
using gristmill::Code;
using gristmill::Decoded;
using gristmill::File;
using gristmill::JpegDecoder;
using gristmill::Kind;
using gristmill::kKinds;
using gristmill::Status;

Status read(JpegDecoder& decoder, const File& file, const Box& box) {
  TRY(decoder.open(file));
  TRY(decoder.start(box, 1, 0));
  for (int y = 0; y < box.height; ++y) TRY(decoder.next_row());
  return decoder.finish();
}

void check_part(JpegDecoder& decoder, const File& file, const Decoded& whole,
                const Box& box, int shrink, const char* name) {
  CHECK(decoder.open(file).ok());
  CHECK(decoder.start(box, shrink, 8).ok());
  for (int y = 0; y < box.height; ++y) {
    auto row = decoder.next_row();
    CHECK(row.ok());
    const auto bytes = static_cast<std::size_t>(box.width) * 4;
    if (std::memcmp(row.value(), whole.at(box.top + y, box.left), bytes) == 0) {
      continue;
    }
    std::cerr << name << ", 1/" << shrink << " of " << whole.height << " x "
              << whole.width << ": row " << y << " of " << box.height << " x "
              << box.width << " at " << box.top << ", " << box.left
              << std::endl;
    CHECK(false);
  }
  CHECK(decoder.finish().ok());
}

void test_rectangle_equals_part_of_whole_picture() {
  JpegDecoder decoder;
  std::mt19937 random(1);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  constexpr int sides[][2] = {{1, 1},   {1, 70},  {70, 1},  {2, 3},    {8, 8},
                              {17, 33}, {33, 17}, {64, 64}, {95, 111}, {40, 5}};
  for (const Kind& kind : kKinds) {
    for (const auto& [height, width] : sides) {
      const File file = gristmill::some_jpeg(height, width, kind);
      for (const int shrink : {1, 2, 4, 8}) {
        const Decoded whole = gristmill::decode_whole(file, shrink);
        const Box all{0, 0, whole.height, whole.width};
        check_part(decoder, file, whole, all, shrink, kind.name);
        for (int i = 0; i < 40; ++i) {
          Box box;
          box.height = 1 + below(whole.height);
          box.width = 1 + below(whole.width);
          box.top = below(whole.height - box.height + 1);
          box.left = below(whole.width - box.width + 1);
          check_part(decoder, file, whole, box, shrink, kind.name);
        }
      }
    }
  }
}

void test_truncated_file_is_error_for_any_rectangle() {
  JpegDecoder decoder;
  for (const Kind& kind : kKinds) {
    const File whole = gristmill::some_jpeg(64, 80, kind);
    CHECK(read(decoder, whole, {0, 0, 1, 1}).ok());
    for (const std::size_t cut : {2, 3, 40, 400}) {
      const File file(whole.begin(), whole.end() - static_cast<long>(cut));
      for (const Box& box : {Box{0, 0, 1, 1}, Box{40, 3, 24, 9}}) {
        const Status status = read(decoder, file, box);
        CHECK(status.code() == Code::kInvalidArgument);
        CHECK(status.message().starts_with("the JPEG file is damaged"));
      }
    }
  }
}

void test_bytes_after_end_are_ignored() {
  JpegDecoder decoder;
  File file = gristmill::some_jpeg(64, 80, kKinds[2]);
  file.resize(file.size() + 1000);
  CHECK(read(decoder, file, {40, 3, 24, 9}).ok());
}

void test_damage_in_decoded_rectangle_is_error() {
  JpegDecoder decoder;
  File file = gristmill::some_jpeg(64, 80, kKinds[2]);
  // A marker within the data.
  file[file.size() / 2] = std::byte{0xFF};
  file[file.size() / 2 + 1] = std::byte{0xD9};
  CHECK(!read(decoder, file, {0, 0, 64, 80}).ok());
  CHECK(!read(decoder, {}, {0, 0, 1, 1}).ok());
  // The decoder can continue with the next file before the end of this one.
  CHECK(decoder.open(gristmill::some_jpeg(9, 9, kKinds[1])).ok());
  CHECK(
      read(decoder, gristmill::some_jpeg(5, 5, kKinds[0]), {0, 0, 5, 5}).ok());
}

// Repeats the last scan of a progressive file many times.
void test_too_many_scans_are_error() {
  JpegDecoder decoder;
  File file = gristmill::some_jpeg(16, 16, kKinds[8]);
  const std::byte mark[] = {std::byte{0xFF}, std::byte{0xDA}};
  const auto scan =
      std::find_end(file.begin(), file.end(), std::begin(mark), std::end(mark));
  const File last(scan, file.end() - 2);
  file.resize(file.size() - 2);
  for (int i = 0; i < 600; ++i)
    file.insert(file.end(), last.begin(), last.end());
  file.insert(file.end(), {std::byte{0xFF}, std::byte{0xD9}});
  const Status status = read(decoder, file, {0, 0, 1, 1});
  CHECK(status.message().find("500 scans") != std::string::npos);
}

}  // namespace

int main() {
  test_rectangle_equals_part_of_whole_picture();
  test_truncated_file_is_error_for_any_rectangle();
  test_bytes_after_end_are_ignored();
  test_damage_in_decoded_rectangle_is_error();
  test_too_many_scans_are_error();
}
