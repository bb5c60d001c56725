// A LineCollector lists the lines of a text that arrives in consecutive
// windows.
//
// Thread safety: none; it belongs to one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "core/files/packed_chunks.hpp"

namespace gristmill {

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

}  // namespace gristmill
