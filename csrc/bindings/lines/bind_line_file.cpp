// Binds core/lines/line_file.hpp.
#include <pybind11/stl.h>

#include "bindings/files/span_file.hpp"
#include "core/lines/line_file.hpp"

namespace gristmill::bind {
namespace {

std::unique_ptr<SpanHandle> open_lines(
    const py::object& object, const std::string& access,
    const std::vector<std::string>& index_paths,
    const std::shared_ptr<ChunkCache>& cache, ScanProgress& progress) {
  File::Ptr file = open_file(object, access);
  return std::make_unique<SpanHandle>(checked_file(unlocked([&] {
    return open_line_file(std::move(file), index_paths, cache, progress);
  })));
}

}  // namespace

void line_file(py::module_& m) {
  m.def(
      "open_line_file", &open_lines, "file"_a, "access"_a, "index_paths"_a,
      "cache"_a, "progress"_a,
      "Open a text file, plain or compressed.  Its records are the lines that\n"
      "are not blank.  The cache keeps decompressed frames.");
}

}  // namespace gristmill::bind
