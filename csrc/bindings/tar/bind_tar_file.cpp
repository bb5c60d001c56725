// Binds core/tar/tar_file.hpp, and converts its samples to Python objects.
#include <pybind11/stl.h>

#include "bindings/files/python_file.hpp"
#include "bindings/files/record_reader.hpp"
#include "core/tar/tar_file.hpp"
#include "core/tar/tar_sample.hpp"

namespace gristmill::bind {
namespace {

using TarHandle = HandleOf<TarFile>;

std::unique_ptr<TarHandle> open_tar(const py::object& object,
                                    const std::string& access,
                                    std::vector<std::string> index_paths,
                                    const std::optional<Stamp>& stamp,
                                    ScanProgress& progress) {
  const TarFile::Options options{std::move(index_paths), to_stamp(stamp)};
  File::Ptr file = open_file(object, access);
  return std::make_unique<TarHandle>(checked_file(unlocked(
      [&] { return TarFile::open(std::move(file), options, progress); })));
}

// Decodes like Python's tarfile, which escapes bytes that are not UTF-8.
py::str name_of(std::string_view bytes) {
  PyObject* const text = PyUnicode_DecodeUTF8(
      bytes.data(), static_cast<py::ssize_t>(bytes.size()), "surrogateescape");
  if (text == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(text);
}

py::object field_of(std::string_view extension) {
  const py::str name = name_of(extension);
  if (PyUnicode_IS_ASCII(name.ptr())) return name;
  return name.attr("lower")();
}

py::dict tar_sample(const py::bytes& record, const py::str& url) {
  const std::string_view text = record;
  const auto sample = checked_file(
      TarSample::parse(std::as_bytes(std::span(text.data(), text.size()))));
  py::dict element;
  element["__key__"] = name_of(sample.key);
  element["__url__"] = url;
  for (const auto& [extension, data] : sample.members) {
    const py::object field = field_of(extension);
    if (element.contains(field)) {
      raise_corrupt(
          concat("the sample ", sample.key, " has two fields ", extension,
                 ": the names of fields must not differ only in case"));
    }
    element[field] =
        py::bytes(reinterpret_cast<const char*>(data.data()), data.size());
  }
  return element;
}

}  // namespace

void tar_file(py::module_& m) {
  py::class_<TarHandle, ReaderHandle>(m, "TarFile",
                                      "A tar file, open for reading.")
      .def(py::init(&open_tar), "file"_a, "access"_a, "index_paths"_a,
           "stamp"_a, "progress"_a)
      .def_property_readonly(
          "stamp",
          [](const TarHandle& h) { return stamp_of(h.file()->file()); })
      .def_property_readonly("index_bytes", [](const TarHandle& h) {
        return h.file()->index().held_bytes();
      });
  m.def("tar_sample", &tar_sample, "record"_a, "url"_a,
        "Return the fields of a record of a TarFile, with its key and url.");
}

}  // namespace gristmill::bind
