// Binds core/indices/mixture.hpp.
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/indices/positions.hpp"
#include "core/indices/mixture.hpp"

namespace gristmill::bind {
namespace {

// For fewer positions than this the lock costs more to give back than the
// work.
constexpr std::size_t kUnlockPositions = 4096;

py::tuple take(const Mixture& mixture, const Positions& positions) {
  auto out = copied(positions);
  Indices components(out.size());
  const auto to = numbers(out);
  const auto which = numbers(components);
  unlocked_from(kUnlockPositions, to.size(), [&] { mixture.take(to, which); });
  return py::make_tuple(std::move(components), std::move(out));
}

py::tuple proportions(const Mixture& mixture) {
  py::list all;
  for (const auto proportion : mixture.proportions()) all.append(proportion);
  return py::tuple(all);
}

}  // namespace

void mixture(py::module_& m) {
  py::class_<Mixture>(m, "Mixture",
                      "An immutable rule that mixes views by proportions.")
      .def(py::init([](std::vector<std::int64_t> proportions) {
             return checked(Mixture::of(std::move(proportions)));
           }),
           "proportions"_a)
      .def("take", &take, "positions"_a.noconvert(),
           "Returns the components, and the positions in them, at any int64 "
           "positions.")
      .def(py::pickle(&proportions, [](const py::tuple& all) {
        return checked(Mixture::of(all.cast<std::vector<std::int64_t>>()));
      }));
}

}  // namespace gristmill::bind
