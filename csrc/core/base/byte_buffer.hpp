// A ByteBuffer is memory for bytes that somebody is about to write.
//
// Its bytes start out undefined, so that a size which a damaged file claims
// costs address space and not memory, and running out is a result to check.
//
// Thread safety: none; a buffer belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/own_memory.hpp"

namespace gristmill {

class ByteBuffer {
 public:
  // Makes room for `size` bytes; what the buffer held is lost.  Returns false
  // and holds nothing if there is no memory.
  [[nodiscard]] bool reset(std::uint64_t size) noexcept {
    if (size > memory_.size()) {
      memory_ = {};
      size_ = 0;
      if (size > PTRDIFF_MAX) return false;
      if (!memory_.resize(static_cast<std::size_t>(size))) return false;
    }
    size_ = static_cast<std::size_t>(size);
    return true;
  }

  // Gives memory back that is larger than `most` bytes.
  void shrink(std::size_t most) noexcept {
    if (memory_.size() <= most) return;
    memory_ = {};
    size_ = 0;
  }

  [[nodiscard]] std::span<std::byte> all() noexcept {
    return {memory_.data(), size_};
  }
  [[nodiscard]] std::span<const std::byte> all() const noexcept {
    return {memory_.data(), size_};
  }

 private:
  OwnMemory memory_;
  std::size_t size_ = 0;
};

}  // namespace gristmill
