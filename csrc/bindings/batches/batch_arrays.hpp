// Helpers for the bindings that make batches from arrays whose rows are bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "bindings/bind.hpp"

namespace gristmill::bind {

using Rows = py::array_t<std::int64_t, py::array::c_style>;
using Shape = std::span<const py::ssize_t>;

// For fewer bytes, releasing the GIL costs more than it gains.
inline constexpr std::size_t kUnlockBytes = std::size_t{256} << 10;

// NumPy's NPY_ITEM_REFCOUNT: the items contain references.
inline constexpr std::uint64_t kItemRefcount = 1;

inline Shape shape_of(const py::array& array) {
  return {array.shape(), static_cast<std::size_t>(array.ndim())};
}

inline const std::byte* bytes_of(const py::array& array) {
  return static_cast<const std::byte*>(array.data());
}

// Raises if two ranges of bytes overlap, because copying would then read bytes
// that it has already written.
inline void check_no_overlap(std::span<const std::byte> out,
                             std::span<const std::byte> in, const char* name) {
  const std::less<const std::byte*> before;
  if (!out.empty() && !in.empty() &&
      before(out.data(), in.data() + in.size()) &&
      before(in.data(), out.data() + out.size())) {
    throw py::value_error(std::string("out must not share memory with ") +
                          name);
  }
}

// Checks that `array` consists of plain bytes in C order.
inline void check_plain(const py::array& array, const char* name) {
  if (!(array.flags() & py::array::c_style)) {
    throw py::value_error(std::string(name) + " must be C-contiguous");
  }
  if (array.dtype().flags() & kItemRefcount) {
    throw py::type_error(std::string(name) +
                         " must have a dtype whose items are not references, "
                         "got " +
                         py::str(array.dtype()).cast<std::string>());
  }
}

// Checks that `out` is writeable as a batch of `count` rows.
inline void check_batch(const py::array& out, std::size_t count) {
  check_plain(out, "out");
  if (!out.writeable()) throw py::value_error("out must be writeable");
  if (out.ndim() > 0 && static_cast<std::size_t>(out.shape(0)) == count) return;
  throw py::value_error(concat("out must have ", count, " rows, got shape ",
                               py::str(out.attr("shape")).cast<std::string>()));
}

// Returns whether two dtypes are equal.  The first comparison succeeds in
// nearly every call, because NumPy shares the descriptors of built-in types.
inline bool same_dtype(PyObject* left, PyObject* right) {
  return left == right ||
         py::detail::npy_api::get().PyArray_EquivTypes_(left, right);
}

inline std::size_t row_bytes_of(const py::array& batch) {
  auto bytes = static_cast<std::size_t>(batch.itemsize());
  for (const auto extent : shape_of(batch).subspan(1)) {
    bytes *= static_cast<std::size_t>(extent);
  }
  return bytes;
}

// Returns the header of an exact, C-contiguous ndarray, or nullptr for any
// other element.  Subclasses may interpret their bytes differently.
inline const py::detail::PyArray_Proxy* exact_array(PyObject* element) {
  const auto& api = py::detail::npy_api::get();
  if (Py_TYPE(element) != api.PyArray_Type_) return nullptr;
  const auto* array = py::detail::array_proxy(element);
  const auto ordered = py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_;
  return (array->flags & ordered) != 0 ? array : nullptr;
}

inline Shape shape_of(const py::detail::PyArray_Proxy& array) {
  return {array.dimensions, static_cast<std::size_t>(array.nd)};
}

}  // namespace gristmill::bind
