// Binds core/heap.hpp.
#include <cstdint>
#include <stdexcept>

#include "bindings/bind.hpp"
#include "core/heap.hpp"

namespace gristmill::bind {

void heap(py::module_& m) {
  m.def("keep_freed_memory", &keep_freed_memory,
        "Keeps memory that was freed for what is allocated next.");
  m.attr("HUGE_PAGE_BYTES") = kHugePageBytes;
  m.def(
      "to_huge_page",
      [](std::uintptr_t address) {
        if (address % kHugePageBytes != 0) {
          throw std::invalid_argument("address is no multiple of a huge page");
        }
        return to_huge_page(address);
      },
      "address"_a,
      "Moves memory into one huge page, whose fork is cheap; False where the\n"
      "system cannot.");
}

}  // namespace gristmill::bind
