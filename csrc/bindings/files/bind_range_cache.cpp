// Binds core/files/range_cache.hpp.  Reads and writes without the GIL.
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "bindings/bind.hpp"
#include "core/files/range_cache.hpp"

namespace gristmill::bind {
namespace {

using Origin = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

RangeCache::Origin origin_of(const Origin& origin) {
  const auto [file, version, size] = origin;
  return {file, version, size};
}

std::optional<py::bytes> read(RangeCache& cache, const Origin& origin,
                              std::uint64_t offset, std::size_t size) {
  auto bytes = py::reinterpret_steal<py::bytes>(
      PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(size)));
  if (!bytes) throw py::error_already_set();
  const std::span<std::byte> to(
      reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes.ptr())), size);
  const bool found =
      unlocked([&] { return cache.read(origin_of(origin), offset, to); });
  if (!found) return std::nullopt;
  return bytes;
}

std::string write(RangeCache& cache, const Origin& origin, std::uint64_t offset,
                  const py::bytes& pages) {
  const std::string_view from = pages;
  const RangeCache::Origin here = origin_of(origin);
  const RangeCache::Span range{offset, offset + from.size()};
  const auto whole = RangeCache::pages_of(here, range);
  if (whole.begin != range.begin || whole.end != range.end) {
    throw py::value_error(
        concat("offset and offset + len(pages) must be multiples of ",
               RangeCache::kPageBytes, " or the end of the file, got ",
               range.begin, " and ", range.end));
  }
  unlocked([&] { cache.write(here, offset, std::as_bytes(std::span(from))); });
  return cache.take_problem().message();
}

std::pair<std::uint64_t, std::uint64_t> pages_of(const Origin& origin,
                                                 std::uint64_t offset,
                                                 std::uint64_t size) {
  const auto pages =
      RangeCache::pages_of(origin_of(origin), {offset, offset + size});
  return {pages.begin, pages.end - pages.begin};
}

}  // namespace

void range_cache(py::module_& m) {
  py::class_<RangeCache, std::shared_ptr<RangeCache>>(
      m, "RangeCache", "Caches bytes of remote files in one local file.")
      .def(py::init([](const std::string& folder, std::uint64_t bytes) {
             return checked(
                 unlocked([&] { return RangeCache::open(folder, bytes); }));
           }),
           "folder"_a, "bytes"_a)
      .def_static("min_bytes", &RangeCache::min_bytes)
      .def_property_readonly("path", &RangeCache::path)
      .def_static("pages_of", &pages_of, "origin"_a, "offset"_a, "size"_a,
                  "Return the offset and size of the pages of a range.")
      .def("read", &read, "origin"_a, "offset"_a, "size"_a,
           "Return a range, or None if a part of it is not cached.")
      .def("write", &write, "origin"_a, "offset"_a, "pages"_a,
           "Store whole pages from an offset on, as many as fit.  Return an\n"
           "empty str, or the error that disabled writes to the cache, which "
           "is\n"
           "returned only once.");
}

}  // namespace gristmill::bind
