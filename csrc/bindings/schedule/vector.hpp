// Position vectors on their way between Python and the core.
#pragma once

#include <pybind11/stl.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "core/schedule/lease.hpp"

namespace gristmill::bind {

// From an int64 array of shape (n,) or any sequence of ints.
inline Vector to_vector(py::handle from) {
  if (!py::isinstance<py::array>(from)) {
    py::detail::make_caster<Vector> numbers;
    if (!numbers.load(from, true)) {
      throw py::type_error("a position is a sequence of ints or an array");
    }
    return py::detail::cast_op<Vector&&>(std::move(numbers));
  }
  if (!py::isinstance<py::array_t<std::int64_t>>(from)) {
    throw py::type_error("a position that is an array must have dtype int64");
  }
  const auto array =
      py::array_t<std::int64_t, py::array::c_style>::ensure(from);
  if (!array) throw py::error_already_set();
  if (array.ndim() != 1) throw py::value_error("a position has one dimension");
  return Vector(array.data(), array.data() + array.size());
}

inline std::vector<Vector> to_vectors(const py::sequence& from) {
  std::vector<Vector> all;
  for (const py::handle one : from) all.push_back(to_vector(one));
  return all;
}

// A copy, an int64 array of shape (n,).
inline py::array_t<std::int64_t> from_vector(const Vector& vector) {
  return py::array_t<std::int64_t>(static_cast<py::ssize_t>(vector.size()),
                                   vector.data());
}

}  // namespace gristmill::bind
