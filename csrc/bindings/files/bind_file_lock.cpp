// Binds core/files/file_lock.hpp.  Waits without the GIL.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bindings/bind.hpp"
#include "core/files/file_lock.hpp"

namespace gristmill::bind {
namespace {

// A context manager that holds a FileLock.
struct FileLockHandle {
  std::string path;
  std::chrono::milliseconds max_wait;
  std::unique_ptr<FileLock> lock = nullptr;
};

}  // namespace

void file_lock(py::module_& m) {
  py::class_<FileLockHandle>(
      m, "FileLock",
      "Locks a file that exists, for one process and thread at a time.  After\n"
      "max_wait_ms, or if the file system has no locks, goes on without it.",
      py::is_final())
      .def(py::init([](std::string path, std::int64_t max_wait_ms) {
             return FileLockHandle{std::move(path),
                                   std::chrono::milliseconds(max_wait_ms)};
           }),
           "path"_a, "max_wait_ms"_a)
      .def("__enter__",
           [](FileLockHandle& handle) {
             handle.lock = unlocked([&] {
               return std::make_unique<FileLock>(handle.path, handle.max_wait);
             });
           })
      .def("__exit__", [](FileLockHandle& handle, const py::args&) {
        handle.lock.reset();
      });
}

}  // namespace gristmill::bind
