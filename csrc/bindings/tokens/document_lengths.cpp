#include "bindings/tokens/document_lengths.hpp"

namespace gristmill::bind {

DocumentLengths view_of_lengths(const py::array& lengths) {
  const auto dtype = lengths.dtype();
  if (dtype.kind() != 'i' || (dtype.itemsize() != 4 && dtype.itemsize() != 8) ||
      !dtype.attr("isnative").cast<bool>()) {
    throw py::type_error(concat("lengths must be int32 or int64, got ",
                                py::str(dtype).cast<std::string>()));
  }
  if (lengths.ndim() != 1) {
    throw py::value_error(
        concat("lengths must have one dimension, got ", lengths.ndim()));
  }
  if ((lengths.flags() & py::array::c_style) == 0) {
    throw py::value_error("lengths must be C-contiguous: copy them");
  }
  return {{static_cast<const std::byte*>(lengths.data()),
           static_cast<std::size_t>(lengths.nbytes())},
          static_cast<std::size_t>(dtype.itemsize())};
}

}  // namespace gristmill::bind
