#include "core/images/jpeg_header.hpp"

#include <cstdint>
#include <string_view>

namespace gristmill {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kExif{"Exif\0\0", 6};
constexpr std::string_view kXmp{"http://ns.adobe.com/xap/1.0/\0", 29};
constexpr unsigned kEnd = 0xD9;
constexpr unsigned kScan = 0xDA;
constexpr unsigned kApp1 = 0xE1;
constexpr std::uint32_t kOrientationTag = 0x0112;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns the unsigned number of `size` bytes at `at`, or nullopt if there are
// fewer bytes.
std::optional<std::uint32_t> number_at(Bytes bytes, std::size_t at,
                                       std::size_t size, bool big_endian) {
  if (at > bytes.size() || size > bytes.size() - at) return std::nullopt;
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t place = big_endian ? i : size - 1 - i;
    number = number << 8 | std::to_integer<std::uint32_t>(bytes[at + place]);
  }
  return number;
}

// Returns the value of a directory's entry: one number of 1, 2 or 4 bytes (of
// TIFF's types 1, 3 and 4, which are BYTE, SHORT and LONG).
std::optional<std::uint32_t> value_of(Bytes tiff, std::size_t entry,
                                      bool big_endian) {
  const auto type = number_at(tiff, entry + 2, 2, big_endian);
  const auto count = number_at(tiff, entry + 4, 4, big_endian);
  if (count != 1u) return std::nullopt;
  if (type == 1u) return number_at(tiff, entry + 8, 1, big_endian);
  if (type == 3u) return number_at(tiff, entry + 8, 2, big_endian);
  if (type == 4u) return number_at(tiff, entry + 8, 4, big_endian);
  return std::nullopt;
}

// Returns the orientation in the first directory of EXIF data, which is a TIFF
// file, or nullopt if the data has none or is damaged.
std::optional<std::uint32_t> exif_orientation(Bytes tiff) {
  const std::string_view order = text_of(tiff).substr(0, 2);
  if (order != "II" && order != "MM") return std::nullopt;
  const bool big_endian = order == "MM";
  const auto directory = number_at(tiff, 4, 4, big_endian);
  if (!directory) return std::nullopt;
  const auto entries = number_at(tiff, *directory, 2, big_endian);
  for (std::size_t i = 0; i < entries.value_or(0); ++i) {
    const std::size_t entry = std::size_t{*directory} + 2 + 12 * i;
    const auto tag = number_at(tiff, entry, 2, big_endian);
    if (!tag) break;
    if (*tag == kOrientationTag) return value_of(tiff, entry, big_endian);
  }
  return std::nullopt;
}

// Returns the number after tiff:Orientation=" or tiff:Orientation> in an XMP
// packet.
std::optional<std::uint32_t> xmp_orientation(std::string_view packet) {
  static constexpr std::string_view kName = "tiff:Orientation";
  std::size_t at = packet.find(kName);
  for (; at != packet.npos; at = packet.find(kName, at + 1)) {
    std::string_view value = packet.substr(at + kName.size());
    if (value.starts_with("=\"")) {
      value.remove_prefix(2);
    } else if (value.starts_with('>')) {
      value.remove_prefix(1);
    } else {
      continue;
    }
    if (!value.empty() && value[0] >= '0' && value[0] <= '9') {
      return static_cast<std::uint32_t>(value[0] - '0');
    }
  }
  return std::nullopt;
}

// Returns whether the marker begins a frame with lossy compression and Huffman
// codes.
constexpr bool is_supported_frame(unsigned marker) {
  return marker >= 0xC0 && marker <= 0xC2;
}
// Excludes C4 (Huffman tables), C8 (reserved) and CC (arithmetic coding).
constexpr bool is_frame(unsigned marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 &&
         marker != 0xCC;
}
constexpr bool has_no_content(unsigned marker) {
  return marker <= 0x01 || (marker >= 0xD0 && marker <= 0xD8);
}

Status early_end_error() {
  return Status(Code::kInvalidArgument,
                "the JPEG file ends before its first scan");
}

// Moves from marker to marker in a file.
class Markers {
 public:
  explicit Markers(Bytes file) : file_(file) {}

  // Returns the next marker that has content.
  Result<unsigned> next() {
    for (;;) {
      // Skips bytes between two markers, like libjpeg.
      while (position_ < file_.size() && file_[position_] != std::byte{0xFF})
        ++position_;
      while (position_ < file_.size() && file_[position_] == std::byte{0xFF})
        ++position_;
      if (position_ == file_.size()) return early_end_error();
      const auto marker = std::to_integer<unsigned>(file_[position_++]);
      if (has_no_content(marker)) continue;
      const auto length = number_at(file_, position_, 2, true);
      if (marker == kEnd || !length || *length > file_.size() - position_) {
        return early_end_error();
      }
      if (*length < 2) {
        return Status(Code::kInvalidArgument,
                      "the JPEG file's segment at byte ", position_,
                      " has no valid length");
      }
      content_ = file_.subspan(position_ + 2, *length - 2);
      position_ += *length;
      return marker;
    }
  }

  [[nodiscard]] Bytes content() const { return content_; }

 private:
  Bytes file_;
  Bytes content_;
  std::size_t position_ = 2;  // After the marker of the start of the file.
};

// Reads a frame's header.  Returns nullopt if JpegDecoder does not support the
// kind of frame.
Result<std::optional<JpegHeader>> read_frame(unsigned marker, Bytes content) {
  const auto bits = number_at(content, 0, 1, true);
  const auto height = number_at(content, 1, 2, true);
  const auto width = number_at(content, 3, 2, true);
  const auto channels = number_at(content, 5, 1, true);
  if (!channels) {
    return Status(Code::kInvalidArgument, "the JPEG file's frame is too short");
  }
  if (!is_supported_frame(marker) || bits != 8u ||
      (channels != 1u && channels != 3u)) {
    return std::optional<JpegHeader>();
  }
  if (*height == 0 || *width == 0) {
    return Status(Code::kInvalidArgument, "the JPEG file has ", *height, " x ",
                  *width, " pixels");
  }
  return std::optional(JpegHeader{static_cast<int>(*height),
                                  static_cast<int>(*width),
                                  static_cast<int>(*channels), 1});
}

}  // namespace

Result<std::optional<JpegHeader>> read_jpeg_header(Bytes file) {
  if (!text_of(file).starts_with("\xFF\xD8\xFF")) {
    return std::optional<JpegHeader>();
  }
  Markers markers(file);
  std::optional<JpegHeader> header;
  Bytes exif;
  Bytes xmp;
  for (;;) {
    const unsigned marker = TRY(markers.next());
    const Bytes content = markers.content();
    if (marker == kScan) break;
    if (marker == kApp1 && text_of(content).starts_with(kExif)) {
      if (exif.empty()) exif = content.subspan(kExif.size());
    } else if (marker == kApp1 && text_of(content).starts_with(kXmp)) {
      xmp = content.subspan(kXmp.size());
    } else if (is_frame(marker)) {
      header = TRY(read_frame(marker, content));
      if (!header) return header;
    }
  }
  if (!header) {
    return Status(Code::kInvalidArgument,
                  "the JPEG file has a scan before its first frame");
  }
  auto orientation = exif_orientation(exif);
  if (!orientation) orientation = xmp_orientation(text_of(xmp));
  if (orientation >= 1u && orientation <= 8u) {
    header->orientation = static_cast<int>(*orientation);
  }
  return header;
}

}  // namespace gristmill
