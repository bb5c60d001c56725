// Binds core/indices/permute.hpp.
#include <cstdint>
#include <numeric>
#include <string>

#include "bindings/bind.hpp"
#include "bindings/indices/positions.hpp"
#include "core/indices/permute.hpp"

namespace gristmill::bind {
namespace {

Indices permutation(std::int64_t count, std::uint32_t seed) {
  if (count < 0) {
    throw py::value_error("count must be non-negative, but got " +
                          std::to_string(count));
  }
  Indices out(count);
  const auto all = numbers(out);
  const Unlocked unlocked;  // A small range walks long.
  std::iota(all.begin(), all.end(), 0);
  if (count > 0) Permutation(count - 1, seed).apply(all);
  return out;
}

}  // namespace

void permute(py::module_& m) {
  m.def(
      "index_shuffle",
      [](std::int64_t index, std::int64_t max_index, std::uint32_t seed,
         std::uint32_t rounds) {
        return checked(unlocked([&] {  // A small range walks long.
          return gristmill::index_shuffle(index, max_index, seed, rounds);
        }));
      },
      "index"_a, "max_index"_a, "seed"_a, "rounds"_a,
      "Returns the position of `index` in a permutation of "
      "[0, ..., max_index].");
  m.def("permutation", &permutation, "count"_a, "seed"_a,
        "Returns the positions of [0, ..., count - 1] in a permutation of "
        "them.");
}

}  // namespace gristmill::bind
