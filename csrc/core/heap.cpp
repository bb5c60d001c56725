#include "core/heap.hpp"

#include <sys/mman.h>

#if defined(__GLIBC__) || defined(__gnu_linux__)
#include <malloc.h>
#endif

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace gristmill {

void keep_freed_memory() {
#ifdef M_TRIM_THRESHOLD
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

bool to_huge_page(std::uintptr_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it comes from /proc/self/maps.
  return madvise(reinterpret_cast<void*>(address), kHugePageBytes,
                 MADV_COLLAPSE) == 0;
}

}  // namespace gristmill
