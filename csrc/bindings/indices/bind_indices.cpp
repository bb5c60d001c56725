// Binds core/indices/permute.hpp, window_shuffle.hpp and mixture.hpp.
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/indices/positions.hpp"
#include "core/indices/mixture.hpp"
#include "core/indices/permute.hpp"
#include "core/indices/window_shuffle.hpp"

namespace gristmill::bind {
namespace {

Indices permutation(std::int64_t count, std::uint32_t seed) {
  if (count < 0) {
    throw py::value_error(concat("count must be at least 0, got ", count));
  }
  Indices out(count);
  const auto all = numbers(out);
  const Unlocked unlocked;  // Even a small range may take many steps.
  std::iota(all.begin(), all.end(), 0);
  if (count > 0) Permutation(count - 1, seed).apply(all);
  return out;
}

// With fewer positions than this, releasing the GIL takes longer than the work.
constexpr std::size_t kUnlockPositions = 4096;

py::tuple take(const Mixture& mixture, const Positions& positions) {
  auto out = copy_of(positions);
  Indices components(out.size());
  const auto position_span = numbers(out);
  const auto component_span = numbers(components);
  unlocked_from(kUnlockPositions, position_span.size(),
                [&] { mixture.take(position_span, component_span); });
  return py::make_tuple(std::move(components), std::move(out));
}

py::tuple proportions(const Mixture& mixture) {
  const auto all = mixture.proportions();
  return py::tuple(py::cast(std::vector(all.begin(), all.end())));
}

}  // namespace

void permute(py::module_& m) {
  m.def(
      "index_shuffle",
      [](std::int64_t index, std::int64_t max_index, std::uint32_t seed,
         std::uint32_t rounds) {
        return checked(unlocked([&] {  // May take many steps.
          return gristmill::index_shuffle(index, max_index, seed, rounds);
        }));
      },
      "index"_a, "max_index"_a, "seed"_a, "rounds"_a,
      "Return the position of `index` in a permutation of "
      "[0, ..., max_index].\n\n"
      "Example:\n"
      "    >>> [index_shuffle(i, max_index=4, seed=1, rounds=4) for i in "
      "range(5)]\n"
      "    [1, 2, 3, 0, 4]\n");
  m.def("permutation", &permutation, "count"_a, "seed"_a,
        "Return the positions of [0, ..., count - 1] in a permutation of them, "
        "int64.");
}

void window_shuffle(py::module_& m) {
  m.def(
      "window_shuffle",
      [](const Positions& positions, std::int64_t window_size,
         std::int64_t seed, std::int64_t length) {
        auto out = copy_of(positions);
        const auto all = numbers(out);
        const auto status = unlocked([&] {  // May take many steps.
          return gristmill::window_shuffle(all, window_size, seed, length);
        });
        if (status.code() == Code::kOutOfRange) {
          // Grain raises TypeError, because its argument type is too narrow.
          throw py::type_error(status.message());
        }
        check(status);
        return out;
      },
      "positions"_a.noconvert(), "window_size"_a, "seed"_a, "length"_a,
      "Return the positions, int64 of shape (n,), that are at the given int64\n"
      "positions after the windows of each epoch of `length` positions are\n"
      "shuffled.");
}

void mixture(py::module_& m) {
  py::class_<Mixture>(m, "Mixture",
                      "An immutable rule that mixes components by proportions.")
      .def(py::init([](std::vector<std::int64_t> proportions) {
             return checked(Mixture::of(std::move(proportions)));
           }),
           "proportions"_a)
      .def("take", &take, "positions"_a.noconvert(),
           "Return the components, and the positions in them, at int64 "
           "positions.")
      .def(py::pickle(&proportions, [](const py::tuple& all) {
        return checked(Mixture::of(all.cast<std::vector<std::int64_t>>()));
      }));
}

}  // namespace gristmill::bind
