// Binds core/lines/line_index.hpp.
#include <pybind11/stl.h>

#include "bindings/files/span_file.hpp"
#include "core/lines/line_index.hpp"

namespace gristmill::bind {
namespace {

std::unique_ptr<SpanHandle> open_lines(
    const py::object& object, const std::string& access,
    const std::vector<std::string>& index_paths, ScanProgress& progress) {
  return open_span_file(object, access, "line", [&](const File& file) {
    return line_index(file, index_paths, progress);
  });
}

}  // namespace

void line_index(py::module_& m) {
  m.def("open_line_file", &open_lines, "file"_a, "access"_a, "index_paths"_a,
        "progress"_a,
        "Open a text file.  Its records are the lines that are not blank.");
}

}  // namespace gristmill::bind
