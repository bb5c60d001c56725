// Arrays of positions: the callers' arrays, and copies that the core modifies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings/bind.hpp"

namespace gristmill::bind {

// int64 numbers of any layout.  Bind such arguments with noconvert().
using Positions = py::array_t<std::int64_t, 0>;
// A new array: aligned, C-contiguous and not shared.
using Indices = py::array_t<std::int64_t, py::array::c_style>;

// Returns the positions in a new array.  Raises ValueError unless they have
// one dimension.
inline Indices copy_of(const Positions& positions) {
  if (positions.ndim() != 1) {
    throw py::value_error(
        concat("positions must have one dimension, got ", positions.ndim()));
  }
  Indices out(positions.size());
  // NumPy's copy supports any layout, but takes 500 more instructions.
  if (is_aligned(positions) && (positions.flags() & py::array::c_style) != 0) {
    std::copy_n(positions.data(), positions.size(), out.mutable_data());
    return out;
  }
  const auto& numpy = py::detail::npy_api::get();
  if (numpy.PyArray_CopyInto_(out.ptr(), positions.ptr()) < 0) {
    throw py::error_already_set();
  }
  return out;
}

// Returns a view of the array's numbers, valid while the array exists.
inline std::span<std::int64_t> numbers(Indices& array) {
  return {array.mutable_data(), static_cast<std::size_t>(array.size())};
}

}  // namespace gristmill::bind
