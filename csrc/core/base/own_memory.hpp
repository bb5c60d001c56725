// OwnMemory is memory for bytes, which keeps its contents when it is resized.
//
// Large memory is mapped directly.  It grows without a copy and returns to the
// system as soon as it is freed; an allocator would keep memory that another
// thread freed.
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

  // Changes the size.  Returns false and changes nothing if memory runs out.
  // New bytes are uninitialized.
  [[nodiscard]] bool resize(std::size_t size) noexcept {
    if (size == 0) {
      *this = {};
      return true;
    }
    void* const to = mapped_ ? remap(size) : reallocate(size);
    if (to == nullptr || to == MAP_FAILED) return false;
    data_ = static_cast<std::byte*>(to);
    size_ = size;
    return true;
  }

  // Replaces the pages by those of a mapping with the same bytes, which are
  // read-only from then on.  Other threads may read the bytes meanwhile.
  // Small memory remains as it is.  Unmaps the mapping.
  void share_pages(void* mapping) noexcept {
    if (!mapped_ || mremap(mapping, size_, size_, MREMAP_MAYMOVE | MREMAP_FIXED,
                           data_) == MAP_FAILED) {
      munmap(mapping, size_);
    }
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  // Memory of at least this size is mapped, and stays mapped if it shrinks.
  static constexpr std::size_t kMappedBytes = std::size_t{1} << 20;

  void swap(OwnMemory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
  }

  void* remap(std::size_t size) noexcept {
    return mremap(data_, size_, size, MREMAP_MAYMOVE);
  }

  void* reallocate(std::size_t size) noexcept {
    if (size < kMappedBytes) return std::realloc(data_, size);
    void* const to = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED) return nullptr;
    // If the system refuses huge pages, it uses small ones.
    madvise(to, size, MADV_HUGEPAGE);
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
