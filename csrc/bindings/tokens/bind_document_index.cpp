// Binds core/tokens/document_index.hpp.
#include <pybind11/stl.h>

#include "bindings/files/span_file.hpp"
#include "core/tokens/document_index.hpp"

namespace gristmill::bind {
namespace {

std::unique_ptr<SpanHandle> open_documents(
    const py::object& object, const std::string& access, std::uint64_t begin,
    std::size_t width, std::uint64_t eos, std::optional<std::uint64_t> bos,
    const std::vector<std::string>& index_paths, ScanProgress& progress) {
  if (width != 1 && width != 2 && width != 4 && width != 8) {
    throw py::value_error(
        concat("width must be 1, 2, 4 or 8 bytes, got ", width));
  }
  const DocumentRule rule{begin, width, eos, bos};
  return open_span_file(object, access, "document", [&](const File& file) {
    return document_index(file, rule, index_paths, progress);
  });
}

}  // namespace

void document_index(py::module_& m) {
  m.def("open_token_file", &open_documents, "file"_a, "access"_a, "begin"_a,
        "width"_a, "eos"_a, "bos"_a, "index_paths"_a, "progress"_a,
        "Open a file of token ids.  Its records are the documents.");
}

}  // namespace gristmill::bind
