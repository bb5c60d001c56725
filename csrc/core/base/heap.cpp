#include "core/base/heap.hpp"

#if defined(__GLIBC__) || defined(__gnu_linux__)
#include <malloc.h>
#endif

namespace gristmill {

void keep_freed_memory() {
#ifdef M_TRIM_THRESHOLD
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

}  // namespace gristmill
