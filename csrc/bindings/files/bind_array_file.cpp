// Binds core/files/array_file.hpp.
#include <pybind11/stl.h>

#include "bindings/bind.hpp"
#include "core/files/array_file.hpp"

namespace gristmill::bind {

void array_file(py::module_& m) {
  using Place = ArrayFile::Place;
  py::class_<Place>(m, "ArrayPlace",
                    "The key of arrays and the files that may have them.",
                    py::is_final())
      .def(py::init<std::uint64_t, std::vector<std::string>, std::string>(),
           "key"_a, "index_paths"_a, "data_path"_a)
      .def_readonly("key", &Place::key);
}

}  // namespace gristmill::bind
