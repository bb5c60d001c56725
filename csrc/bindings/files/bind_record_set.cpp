// Binds core/files/record_set.hpp.  Python opens the readers of parts, in the
// thread that reads them.
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/files/record_reader.hpp"
#include "bindings/files/span_file.hpp"
#include "core/files/record_set.hpp"
#include "core/files/shared_index.hpp"

namespace gristmill::bind {
namespace {

class SetHandle final : public ReaderHandle {
 public:
  SetHandle(std::string name,
            const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges,
            py::function open, const std::optional<py::dtype>& dtype)
      : ReaderHandle(
            std::make_shared<RecordSet>(std::move(name), to_ranges(ranges)),
            dtype ? py::object(*dtype) : py::none()),
        open_(std::move(open)) {}

  // Sets the reader of a part.
  void open_part(std::size_t part, const ReaderHandle& handle) {
    check_part(part);
    check(set()->open_part(part, handle.reader()));
  }

  // Returns the lengths of the records of a part, as an array.  Opens all parts
  // together, because the caller needs the lengths of the others, too.
  py::object lengths(std::size_t part, std::uint64_t item_bytes) {
    check_part(part);
    if (!set()->reader(part)) open_parts(all_closed_parts());
    const ReaderPtr part_reader = set()->reader(part);
    const auto file = std::dynamic_pointer_cast<const SpanFile>(part_reader);
    if (!file || item_bytes == 0) {
      throw py::value_error(path() + ": records have no lengths");
    }
    const auto listed =
        unlocked([&] { return file->index().listed_lengths(); });
    if (!listed.empty()) return view_lengths(file, listed);
    Records lengths(static_cast<py::ssize_t>(file->size()));
    const std::span to(lengths.mutable_data(),
                       static_cast<std::size_t>(lengths.size()));
    check_file(unlocked([&] { return file->lengths(item_bytes, to); }));
    return lengths;
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

  // Returns a view of the lengths that the index of `file` lists.
  static py::object view_lengths(const std::shared_ptr<const SpanFile>& file,
                                 std::span<const std::byte> listed) {
    using Owner = std::shared_ptr<const SpanFile>;
    const py::capsule owner(new Owner(file), [](void* pointer) {
      delete static_cast<Owner*>(pointer);
    });
    py::array lengths(py::dtype::of<std::int32_t>(),
                      static_cast<py::ssize_t>(listed.size() / 4),
                      listed.data(), owner);
    lengths.attr("flags").attr("writeable") = false;
    return lengths;
  }

  [[nodiscard]] std::vector<std::size_t> all_closed_parts() const {
    std::vector<std::size_t> closed;
    for (std::size_t part = 0; part < set()->num_parts(); ++part) {
      if (!set()->reader(part)) closed.push_back(part);
    }
    return closed;
  }

  void check_part(std::size_t part) const {
    const std::size_t count = set()->num_parts();
    if (part < count) return;
    throw py::index_error(
        concat("part must be less than ", count, ", got ", part));
  }

  void prepare(std::span<const RecordReader::Request> requests) override {
    open_parts(set()->closed_parts(requests));
  }

  void open_parts(const std::vector<std::size_t>& parts) {
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
                    py::function, const std::optional<py::dtype>&>(),
           "name"_a, "ranges"_a, "open"_a, "dtype"_a = py::none())
      .def("open_part", &SetHandle::open_part, "part"_a, "reader"_a,
           "Set the reader of a part, unless it has one.")
      .def("lengths", &SetHandle::lengths, "part"_a, "item_bytes"_a,
           "Return the number of items of each record of a part, read-only,\n"
           "without a copy if the file's index lists them.");
}

}  // namespace gristmill::bind
