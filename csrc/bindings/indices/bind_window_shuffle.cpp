// Binds core/indices/window_shuffle.hpp.
#include <cstdint>

#include "bindings/bind.hpp"
#include "bindings/indices/positions.hpp"
#include "core/indices/window_shuffle.hpp"

namespace gristmill::bind {

void window_shuffle(py::module_& m) {
  m.def(
      "window_shuffle",
      [](const Positions& positions, std::int64_t window_size,
         std::int64_t seed, std::int64_t length) {
        auto out = copied(positions);
        const auto all = numbers(out);
        const auto status = unlocked([&] {  // A small window walks long.
          return gristmill::window_shuffle(all, window_size, seed, length);
        });
        if (status.code() == Code::kOutOfRange) {
          // As Grain's, to whom it is an argument of the wrong width.
          throw py::type_error(status.message());
        }
        check(status);
        return out;
      },
      "positions"_a.noconvert(), "window_size"_a, "seed"_a, "length"_a,
      "Returns what comes at any int64 positions, int64 of shape (n,), when "
      "the windows of each epoch of `length` positions are shuffled.");
}

}  // namespace gristmill::bind
