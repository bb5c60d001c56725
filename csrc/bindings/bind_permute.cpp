// Binds core/permute.hpp.
#include <cstdint>

#include "bindings/bind.hpp"
#include "core/permute.hpp"

namespace gristmill::bind {

void permute(py::module_& m) {
  m.def(
      "index_shuffle",
      [](std::int64_t index, std::int64_t max_index, std::uint32_t seed,
         std::uint32_t rounds) {
        return checked([&] {
          const Unlocked unlocked;  // A small range walks long.
          return gristmill::index_shuffle(index, max_index, seed, rounds);
        }());
      },
      "index"_a, "max_index"_a, "seed"_a, "rounds"_a,
      "Returns the position of `index` in a permutation of "
      "[0, ..., max_index].");
}

}  // namespace gristmill::bind
