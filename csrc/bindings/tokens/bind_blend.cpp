// Binds core/tokens/blend.hpp.
#include <pybind11/stl.h>

#include <memory>

#include "bindings/bind.hpp"
#include "core/tokens/blend.hpp"

namespace gristmill::bind {
namespace {

using BlendKeys = py::array_t<std::int64_t, py::array::c_style>;

void check_part_count(std::size_t count) {
  if (count < 1 || count > Blend::kMaxParts) {
    throw py::value_error(concat("a blend must have from 1 to ",
                                 Blend::kMaxParts, " sources, got ", count));
  }
}

std::unique_ptr<Blend> weighted(const std::vector<double>& weights,
                                std::size_t size,
                                const ArrayFile::Place& place) {
  check_part_count(weights.size());
  return std::make_unique<Blend>(
      checked(unlocked([&] { return Blend::weighted(weights, size, place); })));
}

std::unique_ptr<Blend> exhaustive(const std::vector<std::int64_t>& sizes,
                                  const ArrayFile::Place& place) {
  check_part_count(sizes.size());
  for (const std::int64_t size : sizes) {
    if (size < 1) {
      throw py::value_error(concat("sizes must be positive, got ", size));
    }
  }
  return std::make_unique<Blend>(
      checked(unlocked([&] { return Blend::exhaustive(sizes, place); })));
}

py::tuple find(const Blend& blend, const BlendKeys& keys) {
  BlendKeys parts(keys.size());
  BlendKeys numbers(keys.size());
  for (py::ssize_t i = 0; i < keys.size(); ++i) {
    const std::int64_t key = keys.data()[i];
    if (key < 0 || static_cast<std::size_t>(key) >= blend.size()) {
      throw py::index_error(
          concat("sample ", key, " is not in [0, ", blend.size(), ")"));
    }
    const auto sample = blend.at(static_cast<std::size_t>(key));
    parts.mutable_data()[i] = sample.part;
    numbers.mutable_data()[i] = sample.number;
  }
  return py::make_tuple(parts, numbers);
}

}  // namespace

void blend(py::module_& m) {
  py::class_<Blend>(m, "Blend", "The order of Megatron's BlendedDataset.",
                    py::is_final())
      .def_static("weighted", &weighted, "weights"_a, "size"_a, "place"_a)
      .def_static("exhaustive", &exhaustive, "sizes"_a, "place"_a)
      .def_property_readonly("counts", &Blend::counts)
      .def_property_readonly("has_index_file", &Blend::has_file)
      .def_property_readonly("index_path",
                             [](const Blend& self) {
                               return unlocked([&] { return self.path(); });
                             })
      .def("__len__", &Blend::size)
      .def("find", &find, "keys"_a,
           "Return the source of each sample, and its number there.");
}

}  // namespace gristmill::bind
