// Binds core/base/pool.hpp: an opaque Pool, to pass to other bindings.
#include <cstddef>
#include <memory>

#include "bindings/bind.hpp"
#include "core/base/pool.hpp"

namespace gristmill::bind {

constexpr std::size_t kMaxThreads = 1024;

void pool(py::module_& m) {
  py::class_<Pool>(m, "Pool", "Threads that read in the background.")
      .def(py::init([](std::size_t threads) {
             if (threads < 1 || threads > kMaxThreads) {
               throw py::value_error(concat("threads must be between 1 and ",
                                            kMaxThreads, ", got ", threads));
             }
             return std::make_unique<Pool>(threads);
           }),
           "threads"_a)
      .def_property_readonly("threads", &Pool::threads);
}

}  // namespace gristmill::bind
