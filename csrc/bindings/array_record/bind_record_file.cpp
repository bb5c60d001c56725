// Binds core/array_record/record_file.hpp.
#include <pybind11/stl.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/files/python_file.hpp"
#include "bindings/files/record_reader.hpp"
#include "bindings/with_python.hpp"
#include "core/array_record/record_file.hpp"

namespace gristmill::bind {
namespace {

using FileHandle = HandleOf<RecordFile>;

// Number of records and of chunks of a file, and its stamp.
using Count = std::tuple<std::uint64_t, std::uint64_t, Stamp>;

std::unique_ptr<FileHandle> open_array_record(
    const py::object& object, const std::string& verify,
    const std::string& access, std::shared_ptr<ChunkCache> cache,
    const std::optional<Stamp>& stamp, std::vector<std::string> index_paths) {
  RecordFile::Options options{verify_of(verify), std::move(cache)};
  options.stamp = to_stamp(stamp);
  options.index_paths = std::move(index_paths);
  File::Ptr file = open_file(object, access);
  return std::make_unique<FileHandle>(checked_file(
      unlocked([&] { return RecordFile::open(std::move(file), options); })));
}

Count count_of(Result<RecordCount> result) {
  const RecordCount count = checked_file(std::move(result));
  return {count.num_records,
          count.num_chunks,
          {count.stamp.size, count.stamp.version}};
}

Count count_records(const py::object& object, const std::string& verify) {
  const Verify verify_option = verify_of(verify);
  const File::Ptr file = open_file(object, "pread");
  return count_of(
      unlocked([&] { return RecordFile::count(*file, verify_option); }));
}

std::vector<Count> count_all_records(const std::vector<std::string>& paths,
                                     const std::string& verify) {
  const Verify verify_option = verify_of(verify);
  auto results =
      unlocked([&] { return RecordFile::count(paths, verify_option); });
  std::vector<Count> counts;
  for (auto& result : results) counts.push_back(count_of(std::move(result)));
  return counts;
}

// Returns the offsets of the beginning and the end of a chunk, the total size
// of its records, and their number.
py::tuple chunk(const FileHandle& handle, std::uint64_t chunk) {
  const auto file = handle.file();
  const RecordIndex& index = file->index();
  if (chunk >= index.num_chunks()) {
    throw py::index_error(concat("chunk must be less than ", index.num_chunks(),
                                 ", got ", chunk));
  }
  const auto listed = index.chunks.at(chunk);
  return py::make_tuple(listed.begin, listed.end, listed.decoded_size,
                        index.records_in(chunk));
}

}  // namespace

void record_file(py::module_& m) {
  leave_python_at_exit();  // For all bindings.
  py::class_<ChunkCache, std::shared_ptr<ChunkCache>>(
      m, "ChunkCache", "Decoded chunks that files share.")
      .def(py::init<std::size_t>(), "max_bytes"_a)
      .def_property_readonly("held_bytes", &ChunkCache::held_bytes);
  py::class_<FileHandle, ReaderHandle>(m, "RecordFile",
                                       "An ArrayRecord file, open for reading.")
      .def(py::init(&open_array_record), "file"_a, "verify"_a = "all",
           "access"_a = "pread", "cache"_a = py::none(), "stamp"_a = py::none(),
           "index_paths"_a = std::vector<std::string>())
      .def("chunk", &chunk, "chunk"_a)
      .def_property_readonly("options",
                             [](const FileHandle& h) {
                               return py::str(h.file()->index().options);
                             })
      .def_property_readonly(
          "group_size",
          [](const FileHandle& h) { return h.file()->index().group_size; })
      .def_property_readonly(
          "num_chunks",
          [](const FileHandle& h) { return h.file()->index().num_chunks(); })
      .def_property_readonly("index_bytes", [](const FileHandle& h) {
        return h.file()->index().chunks.held_bytes();
      });
  m.def(
      "count_records", &count_records, "file"_a, "verify"_a = "all",
      "Return (number of records, number of chunks, stamp) of an ArrayRecord\n"
      "file.  The stamp is (bytes, version).  Reads only as much of the end\n"
      "of the file as necessary.");
  m.def("count_all_records", &count_all_records, "paths"_a, "verify"_a = "all",
        "Return count_records() of each local file, using several threads.");
}

}  // namespace gristmill::bind
