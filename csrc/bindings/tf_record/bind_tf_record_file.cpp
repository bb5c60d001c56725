// Binds core/tf_record/tf_record_file.hpp.
#include <pybind11/stl.h>

#include "bindings/files/python_file.hpp"
#include "bindings/files/record_reader.hpp"
#include "core/tf_record/tf_record_file.hpp"

namespace gristmill::bind {
namespace {

using TfFileHandle = HandleOf<TfRecordFile>;

std::unique_ptr<TfFileHandle> open_tf_record(
    const py::object& object, const std::string& verify,
    const std::string& access, std::vector<std::string> index_paths,
    ScanProgress& progress) {
  const TfRecordFile::Options options{verify_of(verify),
                                      std::move(index_paths)};
  File::Ptr file = open_file(object, access);
  return std::make_unique<TfFileHandle>(checked_file(unlocked(
      [&] { return TfRecordFile::open(std::move(file), options, progress); })));
}

}  // namespace

void tf_record_file(py::module_& m) {
  py::class_<ScanProgress>(
      m, "ScanProgress", "The progress of a pass over a file.", py::is_final())
      .def(py::init())
      .def_property_readonly(
          "done_bytes",
          [](const ScanProgress& p) {
            return p.done_bytes.load(std::memory_order_relaxed);
          })
      .def("cancel", [](ScanProgress& p) {
        p.cancelled.store(true, std::memory_order_relaxed);
      });
  py::class_<TfFileHandle, ReaderHandle>(m, "TfRecordFile",
                                         "A TFRecord file, open for reading.")
      .def(py::init(&open_tf_record), "file"_a, "verify"_a, "access"_a,
           "index_paths"_a, "progress"_a)
      .def_property_readonly(
          "index_path",
          [](const TfFileHandle& h) { return h.file()->index().path(); })
      .def_property_readonly("index_bytes", [](const TfFileHandle& h) {
        return h.file()->index().held_bytes();
      });
}

}  // namespace gristmill::bind
