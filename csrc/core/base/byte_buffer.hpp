// A ByteBuffer is memory for bytes that somebody is about to write.
//
// Its bytes start out undefined, so that a size which a damaged file claims
// costs address space and not memory, and running out is a result to check.
//
// Thread safety: none; a buffer belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

namespace gristmill {

class ByteBuffer {
 public:
  // Makes room for `size` bytes; what the buffer held is lost.  Returns false
  // and holds nothing if there is no memory.
  [[nodiscard]] bool reset(std::uint64_t size) noexcept {
    if (size > capacity_) {
      bytes_.reset();
      capacity_ = 0;
      size_ = 0;
      if (size > PTRDIFF_MAX) return false;
      bytes_.reset(new (std::nothrow)
                       std::byte[static_cast<std::size_t>(size)]);
      if (!bytes_) return false;
      capacity_ = static_cast<std::size_t>(size);
    }
    size_ = static_cast<std::size_t>(size);
    return true;
  }

  // Gives memory back that is larger than `most` bytes.
  void shrink(std::size_t most) noexcept {
    if (capacity_ <= most) return;
    bytes_.reset();
    capacity_ = 0;
    size_ = 0;
  }

  [[nodiscard]] std::span<std::byte> all() noexcept {
    return {bytes_.get(), size_};
  }
  [[nodiscard]] std::span<const std::byte> all() const noexcept {
    return {bytes_.get(), size_};
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
};

}  // namespace gristmill
