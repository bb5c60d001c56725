// How a process that only makes batches keeps its heap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

// Makes the allocator keep freed memory, up to some 100 MB, rather than give it
// back to the system at each batch and fault it in again for the next: records
// of a batch together are larger than what it keeps by default.  For processes
// of our own; a user's process is the user's.
void keep_freed_memory();

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Moves the memory of one huge page there, so that a fork copies one entry of
// the page table in place of 512.  Its content and address stay.  False where
// the system cannot: before Linux 6.1, or where nothing was written.
// REQUIRES: `address` is a multiple of kHugePageBytes.
bool to_huge_page(std::uintptr_t address);

}  // namespace gristmill
