// Binds core/files/replace_file.hpp.
#include <pybind11/stl/filesystem.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "bindings/bind.hpp"
#include "core/files/replace_file.hpp"

namespace gristmill::bind {

void replace_file(py::module_& m) {
  m.def(
      "replace_file",
      [](const std::filesystem::path& path, const py::bytes& data) {
        const std::string_view bytes = data;
        check(unlocked([&] {
          return gristmill::replace_file(path.string(),
                                         {std::as_bytes(std::span(bytes))});
        }));
      },
      "path"_a, "data"_a,
      "Replace a file atomically.  Create its folder if it does not exist.\n\n"
      "Raises:\n"
      "    OSError: The file cannot be written.");
}

}  // namespace gristmill::bind
