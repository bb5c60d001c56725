// Binds core/files/span_file.hpp.
#include "bindings/files/span_file.hpp"

namespace gristmill::bind {

void span_file(py::module_& m) {
  py::class_<SpanHandle, ReaderHandle>(
      m, "SpanFile", "Records of a file that an index lists, open for reading.")
      .def_property_readonly("index_path", [](const SpanHandle& h) {
        return h.file()->index().path();
      });
}

}  // namespace gristmill::bind
