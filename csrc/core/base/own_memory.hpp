// OwnMemory is memory for bytes, which keeps what it holds when it is resized.
//
// Much of it is mapped by itself: it grows without a copy, and the system has
// it back at once, where an allocator would keep what another thread has freed.
//
// Thread safety: none; it belongs to one thread.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace gristmill {

class OwnMemory {
 public:
  OwnMemory() = default;
  OwnMemory(OwnMemory&& other) noexcept { swap(other); }
  OwnMemory& operator=(OwnMemory&& other) noexcept {
    OwnMemory(std::move(other)).swap(*this);
    return *this;
  }
  ~OwnMemory() {
    if (mapped_) {
      munmap(data_, size_);
    } else {
      std::free(data_);
    }
  }

  // Returns false, and changes nothing, if there is no memory.  Bytes that were
  // not there before are undefined.
  [[nodiscard]] bool resize(std::size_t size) noexcept {
    if (size == 0) {
      *this = {};
      return true;
    }
    void* const to = mapped_ ? remapped(size) : moved(size);
    if (to == nullptr || to == MAP_FAILED) return false;
    data_ = static_cast<std::byte*>(to);
    size_ = size;
    return true;
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t kMapped = std::size_t{1} << 20;

  void swap(OwnMemory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
  }

  void* remapped(std::size_t size) noexcept {
    return mremap(data_, size_, size, MREMAP_MAYMOVE);
  }

  void* moved(std::size_t size) noexcept {
    if (size < kMapped) return std::realloc(data_, size);
    void* const to = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED) return nullptr;
    madvise(to, size, MADV_HUGEPAGE);  // Where it is refused, small ones serve.
    if (size_ > 0) std::memcpy(to, data_, std::min(size, size_));
    std::free(data_);
    mapped_ = true;
    return to;
  }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool mapped_ = false;
};

}  // namespace gristmill
