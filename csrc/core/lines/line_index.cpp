#include "core/lines/line_index.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/files/file_scan.hpp"
#include "core/files/shared_index.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

// Stored in an index in place of the hash that other formats have.  It stands
// for files of lines.
constexpr std::uint64_t kKind = 0x316e696c;  // "lin1"

constexpr std::string_view kGzip = "\x1f\x8b";
constexpr std::string_view kZstd = "\x28\xb5\x2f\xfd";

Status check_uncompressed(const File& file) {
  std::string begin(std::min<std::uint64_t>(file.size(), kZstd.size()), '\0');
  TRY(file.read(0, std::as_writable_bytes(std::span(begin))));
  const bool gzip = begin.starts_with(kGzip);
  const bool zstd = begin.starts_with(kZstd);
  if (!gzip && !zstd) return {};
  return damaged("the file is compressed with ", gzip ? "gzip" : "zstd",
                 ", expected text: decompress it, or convert it to an "
                 "ArrayRecord file by `gristmill convert`");
}

// Collects the lines of a file from its consecutive windows.
class LineCollector {
 public:
  // `at` is the offset of the window in the file.
  void add_window(std::uint64_t at, std::span<const std::byte> window) {
    const std::byte* const first = window.data();
    const std::byte* const end = first + window.size();
    for (const std::byte* from = first; from < end;) {
      const auto left = static_cast<std::size_t>(end - from);
      const auto* newline =
          static_cast<const std::byte*>(std::memchr(from, '\n', left));
      const std::byte* const stop = newline == nullptr ? end : newline;
      extend_line({from, stop}, at + static_cast<std::uint64_t>(from - first));
      if (newline == nullptr) return;
      finish_line();
      from = newline + 1;
      begin_ = at + static_cast<std::uint64_t>(from - first);
    }
  }

  // Returns the lines of the file, which has `file_size` bytes.
  PackedChunks finish(std::uint64_t file_size) {
    finish_line();
    lines_.finish(file_size);
    return std::move(lines_);
  }

 private:
  static bool is_blank(std::byte byte) {
    return byte == std::byte{' '} || byte == std::byte{'\t'} ||
           byte == std::byte{'\r'};
  }

  // Adds bytes to the current line; they are at offset `at`.  A last "\r" ends
  // the line unless more bytes follow in the next window.
  void extend_line(std::span<const std::byte> bytes, std::uint64_t at) {
    if (bytes.empty()) return;
    end_ = at + bytes.size() - (bytes.back() == std::byte{'\r'} ? 1 : 0);
    has_text_ = has_text_ || !std::ranges::all_of(bytes, is_blank);
  }

  void finish_line() {
    if (has_text_) lines_.add(begin_, end_ - begin_);
    has_text_ = false;
  }

  PackedChunks lines_;
  // The begin of the current line, the end of its text, and whether it has
  // text.
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  bool has_text_ = false;
};

Result<PackedChunks> scan(const File& file, ScanProgress& progress) {
  TRY(check_uncompressed(file));
  LineCollector lines;
  TRY(scan_file(file, 0, progress, [&](std::uint64_t at, auto window) {
    lines.add_window(at, window);
    return Status();
  }));
  return lines.finish(file.size());
}

}  // namespace

Result<std::unique_ptr<const SpanIndex>> line_index(
    const File& file, std::span<const std::string> index_paths,
    ScanProgress& progress) {
  auto [records, path] = TRY(load_or_scan_places(
      file, kKind, index_paths, [&] { return scan(file, progress); }));
  return std::unique_ptr<const SpanIndex>(
      std::make_unique<ScannedIndex>(std::move(records), std::move(path)));
}

}  // namespace gristmill
