// Binds core/base/heap.hpp.
#include "bindings/bind.hpp"
#include "core/base/heap.hpp"

namespace gristmill::bind {

void heap(py::module_& m) {
  m.def("keep_freed_memory", &keep_freed_memory,
        "Keeps memory that was freed for what is allocated next.");
}

}  // namespace gristmill::bind
