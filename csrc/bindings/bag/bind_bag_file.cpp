// Binds core/bag/bag_file.hpp.
#include <pybind11/stl.h>

#include "bindings/files/python_file.hpp"
#include "bindings/files/record_reader.hpp"
#include "core/bag/bag_file.hpp"

namespace gristmill::bind {
namespace {

using BagHandle = HandleOf<BagFile>;

File::Ptr open_limits(const py::object& limits, const std::string& access) {
  return limits.is_none() ? nullptr : open_file(limits, access);
}

std::unique_ptr<BagHandle> open_bag(const py::object& object,
                                    const py::object& limits,
                                    const std::string& access, bool compressed,
                                    const std::optional<Stamp>& stamp) {
  File::Ptr file = open_file(object, access);
  const BagFile::Options options{open_limits(limits, access), compressed,
                                 to_stamp(stamp)};
  return std::make_unique<BagHandle>(checked_file(
      unlocked([&] { return BagFile::open(std::move(file), options); })));
}

// Returns the number of records of a file, and its stamp.
std::pair<std::uint64_t, Stamp> count_bag(const py::object& object,
                                          const py::object& limits,
                                          const std::string& access) {
  const File::Ptr file = open_file(object, access);
  const File::Ptr limits_file = open_limits(limits, access);
  const auto count = checked_file(unlocked([&]() -> Result<std::uint64_t> {
    auto result = BagLimits::count(*file, limits_file.get());
    if (result.ok()) return result;
    return add_file_context(limits_file ? *limits_file : *file,
                            result.status());
  }));
  return {count, stamp_of(*file)};
}

}  // namespace

void bag_file(py::module_& m) {
  py::class_<BagHandle, ReaderHandle>(m, "BagFile",
                                      "A Bagz file, open for reading.")
      .def(py::init(&open_bag), "file"_a, "limits"_a, "access"_a,
           "compressed"_a, "stamp"_a)
      .def_property_readonly("index_bytes", [](const BagHandle& h) {
        return h.file()->limits().held_bytes();
      });
  m.def("count_bag", &count_bag, "file"_a, "limits"_a, "access"_a,
        "Return the number of records of a Bagz file, and its stamp.");
}

}  // namespace gristmill::bind
