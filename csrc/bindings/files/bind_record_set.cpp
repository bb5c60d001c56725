// Binds core/files/record_set.hpp.  Python opens the readers of parts, in the
// thread that reads them.
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/files/record_reader.hpp"
#include "core/files/record_set.hpp"
#include "core/files/shared_index.hpp"

namespace gristmill::bind {
namespace {

class SetHandle final : public ReaderHandle {
 public:
  SetHandle(std::string name,
            const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges,
            py::function open)
      : ReaderHandle(
            std::make_shared<RecordSet>(std::move(name), to_ranges(ranges))),
        open_(std::move(open)) {}

  // Sets the reader of a part.
  void open_part(std::size_t part, const ReaderHandle& handle) {
    const auto set = this->set();
    if (part >= set->num_parts()) {
      throw py::index_error(
          concat("part must be less than ", set->num_parts(), ", got ", part));
    }
    check(set->open_part(part, handle.reader()));
  }

  // A closed set reopens its parts when they are read.
  void close() override { set()->close_parts(); }

 private:
  static std::vector<RecordSet::Range> to_ranges(
      const std::vector<std::pair<std::uint64_t, std::uint64_t>>& pairs) {
    std::vector<RecordSet::Range> ranges;
    for (const auto& [first, count] : pairs) ranges.push_back({first, count});
    return ranges;
  }

  [[nodiscard]] std::shared_ptr<RecordSet> set() const {
    return std::const_pointer_cast<RecordSet>(
        std::static_pointer_cast<const RecordSet>(reader()));
  }

  void prepare(std::span<const RecordReader::Request> requests) override {
    const std::vector<std::size_t> parts = set()->closed_parts(requests);
    if (parts.empty()) return;
    const auto opened = open_(parts).cast<py::list>();
    return_memory_of_indices();
    if (opened.size() != parts.size()) {
      throw py::value_error(concat("open must return a reader for each of ",
                                   parts.size(), " parts, got ",
                                   opened.size()));
    }
    for (std::size_t k = 0; k < parts.size(); ++k) {
      open_part(parts[k], opened[k].cast<const ReaderHandle&>());
    }
  }

  // Takes a list of parts, and returns a list of their readers.
  const py::function open_;
};

}  // namespace

void record_set(py::module_& m) {
  py::class_<SetHandle, ReaderHandle>(
      m, "RecordSet", "Reads from several readers as if they were one.")
      .def(py::init<std::string,
                    const std::vector<std::pair<std::uint64_t, std::uint64_t>>&,
                    py::function>(),
           "name"_a, "ranges"_a, "open"_a)
      .def("open_part", &SetHandle::open_part, "part"_a, "reader"_a,
           "Set the reader of a part, unless it has one.");
}

}  // namespace gristmill::bind
