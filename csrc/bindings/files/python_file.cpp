#include "bindings/files/python_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <tuple>

#include "bindings/base/shared_object.hpp"
#include "bindings/files/python_fetcher.hpp"
#include "bindings/files/record_reader.hpp"
#include "bindings/with_python.hpp"
#include "core/files/local_file.hpp"

namespace gristmill::bind {
namespace {

// Maximum number of concurrent reads of all PythonFiles together.
constexpr std::size_t kRemoteThreads = 64;

// Copies the result of read_range().  REQUIRES: the GIL is held.
Status deliver(PyObject* bytes, const std::string& path, std::uint64_t offset,
               std::span<std::byte> to) {
  const auto at = static_cast<unsigned long long>(offset);
  if (!PyBytes_Check(bytes)) {
    PyErr_Format(PyExc_TypeError,
                 "%s: read_range(%llu, %zu) returned %s, expected bytes",
                 path.c_str(), at, to.size(), Py_TYPE(bytes)->tp_name);
    return take_raised();
  }
  const auto num_bytes = static_cast<std::size_t>(PyBytes_GET_SIZE(bytes));
  if (num_bytes != to.size()) {
    PyErr_Format(PyExc_ValueError,
                 "%s: read_range(%llu, %zu) returned %zu bytes, expected %zu",
                 path.c_str(), at, to.size(), num_bytes, to.size());
    return take_raised();
  }
  unlocked_from(kCopyUnlockedBytes, num_bytes, [&] {
    std::copy_n(PyBytes_AS_STRING(bytes), num_bytes,
                reinterpret_cast<char*>(to.data()));
  });
  return {};
}

LocalFile::Access access_of(const std::string& name) {
  if (name == "pread") return LocalFile::Access::kPread;
  if (name == "mmap") return LocalFile::Access::kMmap;
  throw py::value_error("access must be 'pread' or 'mmap', got '" + name + "'");
}

}  // namespace

File::Ptr PythonFile::open(const py::object& object) {
  Hints hints;
  hints.gap_bytes = object.attr("gap_bytes").cast<std::uint64_t>();
  hints.run_bytes = object.attr("run_bytes").cast<std::uint64_t>();
  hints.tail_bytes = object.attr("tail_bytes").cast<std::uint64_t>();
  hints.parallel = object.attr("parallel").cast<std::size_t>();
  if (hints.run_bytes == 0 || hints.parallel == 0) {
    throw py::value_error(
        concat("run_bytes and parallel must be at least 1, got ",
               hints.run_bytes, " and ", hints.parallel));
  }
  return Ptr(new PythonFile(object, hints));
}

PythonFile::PythonFile(const py::object& object, const Hints& hints)
    : File(object.attr("path").cast<std::string>(),
           object.attr("size").cast<std::uint64_t>(), hints),
      object_(share(py::object(object).release().ptr())),
      version_(
          py::getattr(object, "version", py::int_(0)).cast<std::uint64_t>()),
      fetches_(py::getattr(object, "fetches", py::bool_(false)).cast<bool>()),
      cached_file_(cached_file_of(object)) {}

PythonFile::CachedFile PythonFile::cached_file_of(const py::object& object) {
  const py::object cache = py::getattr(object, "cache", py::none());
  if (cache.is_none()) return {};
  const auto [file, version, size] =
      object.attr("origin")
          .cast<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>>();
  return {cache.cast<std::shared_ptr<RangeCache>>(), {file, version, size}};
}

const File::Fetcher* PythonFile::fetcher() const noexcept {
  static const PythonFetcher fetcher;
  return fetches_ ? &fetcher : nullptr;
}

Status PythonFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  if (cached_file_.cache &&
      cached_file_.cache->read(cached_file_.origin, offset, to))
    return {};
  Status status;
  const bool was_called = with_python([&] {
    PyObject* const bytes =
        PyObject_CallMethod(object_of(object_), "read_range", "KK",
                            static_cast<unsigned long long>(offset),
                            static_cast<unsigned long long>(to.size()));
    if (bytes == nullptr) {
      status = take_raised();
      return;
    }
    status = deliver(bytes, path(), offset, to);
    Py_DECREF(bytes);
  });
  if (was_called) return status;
  return Status::system(ECANCELED, path(),
                        ": not read, because the interpreter is shutting down");
}

std::string PythonFile::describe_change() const {
  std::string description;
  static_cast<void>(with_python([&] {
    PyObject* const result =
        PyObject_CallMethod(object_of(object_), "change", nullptr);
    const char* const text =
        result == nullptr ? nullptr : PyUnicode_AsUTF8(result);
    if (text != nullptr) description = text;
    Py_XDECREF(result);
    PyErr_Clear();
  }));
  return description;
}

File::Ptr open_file(const py::object& file, const std::string& access) {
  const LocalFile::Access access_method = access_of(access);
  py::detail::make_caster<std::string> path;
  if (path.load(file, true)) {
    return checked_file(unlocked([&] {
      return LocalFile::open(static_cast<std::string&>(path), access_method);
    }));
  }
  if (!py::hasattr(file, "read_range")) {
    throw py::type_error("file must be a path or have read_range(), got " +
                         std::string(Py_TYPE(file.ptr())->tp_name));
  }
  return PythonFile::open(file);
}

// A forked child gets a pool of its own, because it does not have the threads
// of the parent's pool.
Pool& remote_pool() {
  static Pool* pool = nullptr;
  static pid_t owner = 0;
  if (pool == nullptr || owner != getpid()) {
    pool = new Pool(kRemoteThreads);
    owner = getpid();
  }
  return *pool;
}

}  // namespace gristmill::bind
