// A ByteBuffer is memory for bytes that will be overwritten.
//
// Its bytes are uninitialized, so a large size from a damaged file costs
// address space but no memory.  Running out of memory is a result to check.
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
  // Makes room for `size` bytes and discards the contents.  If there is no
  // memory, returns false and the buffer is empty.
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

  // Frees the memory if it has more than `max_bytes` bytes.
  void shrink(std::size_t max_bytes) noexcept {
    if (memory_.size() <= max_bytes) return;
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
