// Binds core/files/record_set.hpp.  Python opens the readers of parts, in the
// thread that reads them.
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/files/record_reader.hpp"
#include "bindings/files/span_file.hpp"
#include "core/files/record_lengths.hpp"
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

  // Returns the lengths of the first records[i] records of each part i, as an
  // array.
  py::object lengths(const std::vector<std::uint64_t>& records,
                     std::uint64_t item_bytes,
                     const std::vector<std::string>& index_paths) {
    if (records.size() != set()->num_parts() || item_bytes == 0) {
      throw py::value_error("records must have a number for each part");
    }
    open_parts(all_closed_parts());
    std::vector<RecordPart> parts;
    for (std::size_t part = 0; part < records.size(); ++part) {
      auto file =
          std::dynamic_pointer_cast<const SpanFile>(set()->reader(part));
      if (!file) throw py::value_error(path() + ": records have no lengths");
      // A file that was opened again may have fewer records.
      parts.push_back({file, std::min(records[part], file->size())});
    }
    if (parts.size() == 1) {
      const auto& [file, count] = parts[0];
      const auto listed =
          unlocked([&] { return file->index().listed_lengths(); });
      if (!listed.empty()) return view_of(file, listed.first(4 * count), 4);
    }
    auto found = checked_file(unlocked(
        [&] { return record_lengths(parts, item_bytes, index_paths); }));
    const auto owner =
        std::make_shared<const ArrayFile>(std::move(found.arrays));
    return view_of(owner, owner->array(0), found.width);
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

  // Returns a read-only view of lengths of `width` bytes each.
  template <class Owner>
  static py::object view_of(const std::shared_ptr<Owner>& owner,
                            std::span<const std::byte> lengths,
                            std::size_t width) {
    using Pointer = std::shared_ptr<Owner>;
    const py::capsule base(new Pointer(owner), [](void* pointer) {
      delete static_cast<Pointer*>(pointer);
    });
    py::array view(width == 4 ? py::dtype::of<std::int32_t>()
                              : py::dtype::of<std::int64_t>(),
                   static_cast<py::ssize_t>(lengths.size() / width),
                   lengths.data(), base);
    view.attr("flags").attr("writeable") = false;
    return view;
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
      .def("lengths", &SetHandle::lengths, "records"_a, "item_bytes"_a,
           "index_paths"_a,
           "Return the number of items of each of the first records of each\n"
           "part, read-only, without a copy if a file has them.");
}

}  // namespace gristmill::bind
