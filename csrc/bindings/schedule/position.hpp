// Converts positions and requests between Python and the core.
#pragma once

#include <pybind11/stl.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "core/schedule/lease.hpp"

namespace gristmill::bind {

// Converts an int64 array of shape (n,) or any sequence of ints.
inline Position to_position(py::handle from) {
  if (!py::isinstance<py::array>(from)) {
    py::detail::make_caster<Position> numbers;
    if (!numbers.load(from, true)) {
      throw py::type_error(concat(
          "a position must be a sequence of ints or an int64 array, got ",
          Py_TYPE(from.ptr())->tp_name));
    }
    return py::detail::cast_op<Position&&>(std::move(numbers));
  }
  if (!py::isinstance<py::array_t<std::int64_t>>(from)) {
    throw py::type_error(
        "a position that is an array must have dtype int64, got " +
        py::str(from.attr("dtype")).cast<std::string>());
  }
  const auto array =
      py::array_t<std::int64_t, py::array::c_style>::ensure(from);
  if (!array) throw py::error_already_set();
  if (array.ndim() != 1) {
    throw py::value_error(
        concat("a position must have one dimension, got ", array.ndim()));
  }
  return Position(array.data(), array.data() + array.size());
}

inline std::vector<Position> to_positions(const py::sequence& from) {
  std::vector<Position> all;
  for (const py::handle one : from) all.push_back(to_position(one));
  return all;
}

// Returns a copy as an int64 array of shape (n,).
inline py::array_t<std::int64_t> from_position(const Position& position) {
  return py::array_t<std::int64_t>(static_cast<py::ssize_t>(position.size()),
                                   position.data());
}

}  // namespace gristmill::bind
