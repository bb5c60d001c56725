// Binds core/tokens/megatron_index.hpp.
#include "bindings/files/span_file.hpp"
#include "core/tokens/megatron_index.hpp"

namespace gristmill::bind {
namespace {

// The bindings only read an index, but pybind11 cannot hold a pointer to const.
using IndexPtr = std::shared_ptr<MegatronIndex>;

IndexPtr open_index(const py::object& object, const std::string& access,
                    bool documents) {
  const auto unit = documents ? MegatronIndex::Unit::kDocument
                              : MegatronIndex::Unit::kSequence;
  File::Ptr file = open_file(object, access);
  std::shared_ptr<const MegatronIndex> index = checked_file(
      unlocked([&] { return MegatronIndex::open(std::move(file), unit); }));
  return std::const_pointer_cast<MegatronIndex>(index);
}

std::unique_ptr<SpanHandle> open_megatron_file(const py::object& object,
                                               const std::string& access,
                                               const IndexPtr& index,
                                               const char* noun) {
  return std::make_unique<SpanHandle>(
      std::make_shared<const SpanFile>(open_file(object, access), index, noun));
}

}  // namespace

void megatron_index(py::module_& m) {
  py::class_<MegatronIndex, IndexPtr>(m, "MegatronIndex",
                                      "The .idx file of a Megatron data set.",
                                      py::is_final())
      .def(py::init(&open_index), "file"_a, "access"_a, "documents"_a)
      .def("__len__", &MegatronIndex::size)
      .def_property_readonly("dtype_code", &MegatronIndex::dtype_code)
      .def_property_readonly(
          "modes",
          [](const MegatronIndex& index) {
            const auto modes = index.modes();
            return py::bytes(reinterpret_cast<const char*>(modes.data()),
                             modes.size());
          },
          "The mode of each sequence, a byte each; empty if there are none.");
  m.def("open_megatron_file", &open_megatron_file, "file"_a, "access"_a,
        "index"_a, "noun"_a,
        "Open a .bin file.  Its records are those of the index.");
}

}  // namespace gristmill::bind
