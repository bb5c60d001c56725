// Arrays of positions: what callers give, and copies that the core changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "bindings/bind.hpp"

namespace gristmill::bind {

// int64 numbers of any layout; take it with noconvert().
using Positions = py::array_t<std::int64_t, 0>;
// What is made of them: aligned, C-contiguous and nobody else's.
using Indices = py::array_t<std::int64_t, py::array::c_style>;

// Returns the positions in a new array.  Raises ValueError unless they have
// one dimension.
inline Indices copied(const Positions& positions) {
  if (positions.ndim() != 1) {
    throw py::value_error("positions must have one dimension, but have " +
                          std::to_string(positions.ndim()));
  }
  constexpr auto kWidth = static_cast<py::ssize_t>(sizeof(std::int64_t));
  const auto count = positions.shape(0);
  const auto stride = positions.strides(0);
  Indices out(count);
  const auto* from = reinterpret_cast<const std::byte*>(positions.data());
  auto* const to = out.mutable_data();
  if (stride == kWidth) {
    std::memcpy(to, from, static_cast<std::size_t>(count * kWidth));
    return out;
  }
  for (py::ssize_t k = 0; k < count; ++k) {
    std::memcpy(to + k, from + k * stride, sizeof(std::int64_t));
  }
  return out;
}

// Returns the numbers of an array.  Valid as long as the array.
inline std::span<std::int64_t> numbers(Indices& array) {
  return {array.mutable_data(), static_cast<std::size_t>(array.size())};
}

}  // namespace gristmill::bind
