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
      "Write a file whole or not at all; make its folder if there is none.\n\n"
      "Raises:\n"
      "    OSError: It cannot be written.");
}

}  // namespace gristmill::bind
