// Binds core/example/example.hpp: checks the arguments, allocates arrays, and
// parses records into them.
#include <pybind11/stl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/files/record_reader.hpp"
#include "core/example/example.hpp"

namespace gristmill::bind {
namespace {

using Bytes = ExampleParser::Bytes;
using FeatureList = ExampleParser::FeatureList;
using ParsedFeatures = ExampleParser::ParsedFeatures;
using Offsets = py::array_t<std::int64_t, py::array::c_style>;
using Extents = std::vector<py::ssize_t>;

// For fewer bytes, releasing the GIL takes longer than parsing.
constexpr std::size_t kUnlockParsingBytes = std::size_t{64} << 10;

// The bytes of a record.  They are valid and do not move while this exists.
class Record {
 public:
  explicit Record(py::handle record) {
    if (PyBytes_CheckExact(record.ptr())) {
      set(PyBytes_AS_STRING(record.ptr()), PyBytes_GET_SIZE(record.ptr()));
      return;
    }
    if (PyObject_GetBuffer(record.ptr(), &view_, PyBUF_SIMPLE) != 0) {
      PyErr_Clear();
      throw py::type_error("a record must be bytes, got " +
                           std::string(Py_TYPE(record.ptr())->tp_name));
    }
    set(view_.buf, view_.len);
  }
  ~Record() { PyBuffer_Release(&view_); }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  [[nodiscard]] Bytes all() const noexcept { return all_; }

 private:
  void set(const void* data, py::ssize_t size) noexcept {
    all_ = {static_cast<const std::byte*>(data),
            static_cast<std::size_t>(size)};
  }

  Py_buffer view_{};  // Empty if the record is of type bytes.
  Bytes all_;
};

// Returns the type of the numbers of a dtype, or nullopt for dtype object.
std::optional<Number> number_of(const py::dtype& dtype) {
  if (dtype.kind() == 'O') return std::nullopt;
  const auto name = py::str(dtype).cast<std::string>();
  for (auto number = Number::kBool; number <= Number::kFloat64;
       number = static_cast<Number>(static_cast<int>(number) + 1)) {
    if (name == name_of(number)) return number;
  }
  throw py::value_error(
      "dtype must be bool, an integer or a float type of NumPy, or object for "
      "bytes, got " +
      name);
}

py::array new_array(const py::dtype& dtype, const Extents& shape) {
  const auto& numpy = py::detail::npy_api::get();
  PyObject* const array = numpy.PyArray_NewFromDescr_(
      numpy.PyArray_Type_, py::dtype(dtype).release().ptr(),
      static_cast<int>(shape.size()), shape.data(), nullptr, nullptr, 0,
      nullptr);
  if (array == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::array>(array);
}

std::span<std::byte> contents(py::array& array) {
  return {static_cast<std::byte*>(array.mutable_data()),
          static_cast<std::size_t>(array.nbytes())};
}

// Returns the item of an array without dimensions, as a NumPy scalar.
py::object scalar_of(const py::array& array) { return array[py::tuple()]; }

// Returns the array that `alloc` returns, or a new array if it is None.
py::array new_rows(const py::dtype& dtype, const Extents& shape,
                   const py::object& alloc) {
  if (alloc.is_none()) return new_array(dtype, shape);
  const py::object result = alloc(py::tuple(py::cast(shape)), dtype);
  if (!py::isinstance<py::array>(result)) {
    throw py::type_error("alloc must return an array, got " +
                         std::string(Py_TYPE(result.ptr())->tp_name));
  }
  auto array = py::reinterpret_borrow<py::array>(result);
  const std::span dims(array.shape(), static_cast<std::size_t>(array.ndim()));
  if (!array.dtype().equal(dtype) || !std::ranges::equal(dims, shape) ||
      !(array.flags() & py::array::c_style) || !array.writeable() ||
      !is_aligned(array)) {
    throw py::value_error(
        "alloc must return a C-contiguous array of the shape and dtype that "
        "it is called with");
  }
  return array;
}

// Checks the offsets of the records in the data of a block.
std::span<const std::int64_t> offsets_of(const Offsets& offsets,
                                         const py::array& data) {
  if (!data.dtype().equal(py::dtype::of<std::uint8_t>()) || data.ndim() != 1 ||
      !(data.flags() & py::array::c_style)) {
    throw py::value_error(
        "data must be a C-contiguous uint8 array of shape (n,)");
  }
  if (offsets.ndim() != 1 || offsets.size() == 0 || !is_aligned(offsets)) {
    throw py::value_error(
        "offsets must be an aligned int64 array of shape (records + 1,)");
  }
  const std::span bounds(offsets.data(),
                         static_cast<std::size_t>(offsets.size()));
  if (bounds.front() < 0 || bounds.back() > data.nbytes() ||
      !std::ranges::is_sorted(bounds)) {
    throw py::value_error(concat(
        "offsets must be sorted and between 0 and the size of data, ",
        data.nbytes(), " bytes, got ", bounds.front(), " to ", bounds.back()));
  }
  return bounds;
}

py::bytes bytes_object(Bytes value) {
  return py::bytes(reinterpret_cast<const char*>(value.data()), value.size());
}

// A value that is parsed from a feature of each record.
struct Output {
  py::object key;           // Key in the dict of a record.
  std::size_t feature = 0;  // Index in the names of the parser.
  py::dtype dtype;
  std::optional<Number> number;  // None for dtype object, for bytes.
  // If fixed, the feature has one row.  Otherwise it has any number of rows.
  bool fixed = false;
  Extents shape;        // Shape of a row.
  std::size_t row = 1;  // Values in a row.
  py::object fallback;  // An array of one row for records without it, or None.

  // Returns the shape of `count` rows.
  [[nodiscard]] Extents rows(std::size_t count) const {
    Extents all{static_cast<py::ssize_t>(count)};
    all.insert(all.end(), shape.begin(), shape.end());
    return all;
  }
};

template <class... Parts>
[[noreturn]] void raise_about(std::string_view name, const FeatureList& list,
                              const Parts&... what) {
  const Status status(Code::kInvalidArgument, what...);
  raise_corrupt(add_feature_context(name, list, status).message());
}

std::size_t count_of(std::string_view name, const FeatureList& list) {
  const auto count = count_values(list.kind, list.bytes);
  if (count) return *count;
  raise_about(name, list, "its ", name_of(list.kind), " list is damaged");
}

// Returns a new array of the given shape with the numbers of a feature.
py::array numbers_of(std::string_view name, const FeatureList& list,
                     Number number, const py::dtype& dtype,
                     const Extents& shape) {
  py::array array = new_array(dtype, shape);
  const std::span<std::byte> to = contents(array);
  const Status status =
      unlocked_from(kUnlockParsingBytes, list.bytes.size(),
                    [&] { return read_numbers(number, list.bytes, to); });
  if (!status.ok()) raise_about(name, list, status.message());
  return array;
}

std::vector<Bytes> strings_of(std::string_view name, const FeatureList& list) {
  std::vector<Bytes> values;
  const Status status = read_strings(list.bytes, values);
  if (!status.ok()) raise_about(name, list, status.message());
  return values;
}

// Returns a new array of bytes objects.
py::array strings_array(std::span<const Bytes> values, const py::dtype& dtype,
                        const Extents& shape) {
  py::array array = new_array(dtype, shape);
  auto** items = static_cast<PyObject**>(array.mutable_data());
  for (const Bytes value : values) {
    Py_XSETREF(*items, bytes_object(value).release().ptr());
    ++items;
  }
  return array;
}

class Parser {
 public:
  Parser(std::vector<Output> outputs, std::vector<std::string> names,
         bool refuse_others)
      : outputs_(std::move(outputs)),
        parser_(std::move(names), refuse_others) {}

  // Returns the outputs of a record.
  py::dict parse(py::handle record) const {
    const Record bytes(record);
    ParsedFeatures parsed;
    check_file(parser_.find(bytes.all(), parsed));
    py::dict out;
    for (const Output& output : outputs_) {
      out[output.key] = value_of(output, parsed.features[output.feature]);
    }
    return out;
  }

  // Returns the arrays of a block of k records, of shape (k, *shape) each.
  py::dict parse_block(const py::array& data, const Offsets& offsets,
                       const py::object& alloc) const {
    const std::span bounds = offsets_of(offsets, data);
    py::dict out;
    std::vector<ExampleParser::Column> columns;
    for (const Output& output : outputs_) {
      if (!output.fixed || !output.number) {
        throw py::value_error(
            concat("parse_block needs outputs of numbers in a fixed shape; ",
                   parser_.names()[output.feature], " is not one"));
      }
      py::array rows =
          new_rows(output.dtype, output.rows(bounds.size() - 1), alloc);
      columns.push_back({output.feature, *output.number, contents(rows),
                         fallback_row(output)});
      out[output.key] = rows;
    }
    const Bytes bytes(static_cast<const std::byte*>(data.data()),
                      static_cast<std::size_t>(data.nbytes()));
    std::size_t position = 0;
    const Status status = unlocked(
        [&] { return parser_.read_block(bytes, bounds, columns, position); });
    if (!status.ok()) raise_corrupt(status.message(), position);
    return out;
  }

 private:
  static const std::byte* fallback_row(const Output& output) {
    if (output.fallback.is_none()) return nullptr;
    return static_cast<const std::byte*>(
        py::reinterpret_borrow<py::array>(output.fallback).data());
  }

  py::object value_of(const Output& output, const FeatureList& list) const {
    if (list.kind == ListKind::kNone) return missing(output, list);
    check_file(parser_.check(
        output.feature, list,
        output.number ? list_of(*output.number) : ListKind::kBytes));
    const std::string& name = parser_.names()[output.feature];
    if (!output.number) return strings(output, name, list);
    if (!output.fixed) {
      const auto shape = rows_of(output, name, list, count_of(name, list));
      return numbers_of(name, list, *output.number, output.dtype, shape);
    }
    py::array array =
        numbers_of(name, list, *output.number, output.dtype, output.shape);
    if (output.shape.empty()) return scalar_of(array);
    return array;
  }

  // Returns the fallback for a feature that a record does not have, or raises
  // CorruptRecord if there is none: check() then fails for any ListKind.
  py::object missing(const Output& output, const FeatureList& list) const {
    if (!output.fixed) {
      return new_array(output.dtype, output.rows(0));
    }
    if (output.fallback.is_none()) {
      check_file(parser_.check(output.feature, list, ListKind::kInt64));
    }
    if (!output.shape.empty()) return output.fallback.attr("copy")();
    return scalar_of(py::reinterpret_borrow<py::array>(output.fallback));
  }

  static py::object strings(const Output& output, std::string_view name,
                            const FeatureList& list) {
    const auto values = strings_of(name, list);
    if (!output.fixed) {
      return strings_array(values, output.dtype,
                           rows_of(output, name, list, values.size()));
    }
    if (values.size() != output.row) {
      raise_about(name, list, "it has ", values.size(), " values, expected ",
                  output.row);
    }
    if (output.shape.empty()) return bytes_object(values[0]);
    return strings_array(values, output.dtype, output.shape);
  }

  // Returns the shape of the rows that consist of `count` values.
  static Extents rows_of(const Output& output, std::string_view name,
                         const FeatureList& list, std::size_t count) {
    if (count % output.row != 0) {
      raise_about(name, list, "it has ", count,
                  " values, expected a multiple of ", output.row);
    }
    return output.rows(count / output.row);
  }

  const std::vector<Output> outputs_;
  const ExampleParser parser_;
};

// Creates a parser from the tuples that _core.pyi describes.
std::unique_ptr<Parser> new_parser(const py::list& specs, bool refuse_others) {
  std::vector<Output> outputs;
  std::vector<std::string> names;
  for (const py::handle spec : specs) {
    auto [key, name, dtype, shape, fixed, fallback] =
        py::cast<std::tuple<py::object, std::string, py::dtype, Extents, bool,
                            py::object>>(spec);
    const auto existing = std::ranges::find(names, name);
    const auto feature = static_cast<std::size_t>(existing - names.begin());
    if (existing == names.end()) names.push_back(name);
    std::size_t row = 1;
    for (const auto extent : shape) {
      if (__builtin_mul_overflow(row, static_cast<std::size_t>(extent), &row)) {
        throw py::value_error("the shape of " + name +
                              " must have fewer than 2^64 items");
      }
    }
    if (row == 0 && !fixed) {
      throw py::value_error("the shape of a row of " + name +
                            " must have no extent of 0");
    }
    const auto number = number_of(dtype);
    outputs.push_back({std::move(key), feature, std::move(dtype), number, fixed,
                       std::move(shape), row, std::move(fallback)});
  }
  return std::make_unique<Parser>(std::move(outputs), std::move(names),
                                  refuse_others);
}

// Returns the values of a feature as an array of one dimension.
py::array all_of(std::string_view name, const FeatureList& list) {
  if (list.kind == ListKind::kBytes) {
    const auto values = strings_of(name, list);
    return strings_array(values, py::dtype("O"),
                         {static_cast<py::ssize_t>(values.size())});
  }
  const bool floats = list.kind == ListKind::kFloat;
  return numbers_of(
      name, list, floats ? Number::kFloat32 : Number::kInt64,
      floats ? py::dtype::of<float>() : py::dtype::of<std::int64_t>(),
      {static_cast<py::ssize_t>(count_of(name, list))});
}

// Returns the dict of all features of a record, sorted by name.
py::dict parse_all(py::handle record) {
  const Record bytes(record);
  ParsedFeatures parsed;
  std::vector<ExampleParser::NamedFeature> named;
  check_file(ExampleParser::find_all(bytes.all(), named, parsed));
  py::dict out;
  for (const auto& [name, list] : named) {
    out[py::str(name.data(), name.size())] = all_of(name, list);
  }
  return out;
}

}  // namespace

void example(py::module_& m) {
  py::class_<Parser>(m, "ExampleParser", "Parses tf.train.Examples.")
      .def(py::init(&new_parser), "outputs"_a, "refuse_others"_a)
      .def("parse", &Parser::parse, "record"_a,
           "Return the outputs of one record, a buffer of bytes.  Raises\n"
           "CorruptRecord if a feature is missing or has another type.")
      .def(
          "parse_block", &Parser::parse_block, "data"_a.noconvert(),
          "offsets"_a.noconvert(), "alloc"_a = py::none(),
          "Return the outputs of k records in arrays of shape (k, *S).\n"
          "Record i is data[offsets[i]:offsets[i + 1]].  offsets are int64 of\n"
          "shape (k + 1,).  alloc(shape, dtype) returns an array to fill.\n"
          "The position of a CorruptRecord is the number of the record.\n"
          "Raises ValueError if an output has no fixed shape or is not\n"
          "numeric.");
  m.def("parse_all_features", &parse_all, "record"_a,
        "Return all features of a tf.train.Example.");
}

}  // namespace gristmill::bind
