// How a process that only makes batches keeps its heap.
#pragma once

namespace gristmill {

// Makes the allocator keep freed memory, up to some 100 MB, rather than give it
// back to the system at each batch and fault it in again for the next: records
// of a batch together are larger than what it keeps by default.  For processes
// of our own; a user's process is the user's.
void keep_freed_memory();

}  // namespace gristmill
