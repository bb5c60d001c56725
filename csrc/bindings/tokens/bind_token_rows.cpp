// Binds core/tokens/token_rows.hpp and core/tokens/document_lengths.hpp.
#include <pybind11/stl.h>

#include <limits>
#include <memory>

#include "bindings/bind.hpp"
#include "bindings/tokens/document_lengths.hpp"
#include "core/tokens/token_rows.hpp"

namespace gristmill::bind {
namespace {

// Returns a pointer that keeps an object alive.  It is copied without the GIL.
std::shared_ptr<const void> owner_of(const py::array& array) {
  return {array.inc_ref().ptr(), [](const void* object) {
            const py::gil_scoped_acquire locked;
            Py_DECREF(static_cast<PyObject*>(const_cast<void*>(object)));
          }};
}

py::tuple summarize_lengths(const py::array& array) {
  const DocumentLengths lengths = view_of_lengths(array);
  // No document is longer than the largest capacity.
  const LengthTotals all = checked(unlocked([&] {
    return total_lengths(lengths, std::numeric_limits<std::int64_t>::max());
  }));
  return py::make_tuple(all.tokens, all.longest, all.hash);
}

std::unique_ptr<TokenRows> chunked(const py::array& array, std::int64_t longest,
                                   std::int64_t row_tokens,
                                   const std::vector<std::size_t>& documents,
                                   const std::vector<std::size_t>& rows,
                                   const ArrayFile::Place& place) {
  const DocumentLengths lengths = view_of_lengths(array);
  ChunkRule rule{row_tokens, {}};
  for (std::size_t i = 0; i < documents.size(); ++i) {
    rule.parts.push_back({documents.at(i), rows.at(i)});
  }
  const auto owner = owner_of(array);
  return std::make_unique<TokenRows>(checked(unlocked([&] {
    return TokenRows::chunked(lengths, owner, longest, rule, place);
  })));
}

std::unique_ptr<TokenRows> shuffled(const py::array& array,
                                    std::int64_t longest,
                                    const ShuffleRule& rule,
                                    const ArrayFile::Place& place) {
  const DocumentLengths lengths = view_of_lengths(array);
  const auto owner = owner_of(array);
  return std::make_unique<TokenRows>(checked(unlocked([&] {
    return TokenRows::shuffled(lengths, owner, longest, rule, place);
  })));
}

py::array_t<std::int64_t> to_array(const std::vector<std::int64_t>& values) {
  return py::array_t<std::int64_t>(static_cast<py::ssize_t>(values.size()),
                                   values.data());
}

using Keys = py::array_t<std::int64_t, py::array::c_style>;

py::tuple rows(const TokenRows& all, const Keys& keys) {
  const std::span view(keys.data(), static_cast<std::size_t>(keys.size()));
  for (const std::int64_t key : view) {
    if (key < 0 || static_cast<std::size_t>(key) >= all.size()) {
      throw py::index_error(
          concat("row ", key, " is not in [0, ", all.size(), ")"));
    }
  }
  const RowSpans spans = checked(all.spans(view));
  return py::make_tuple(to_array(spans.offsets), to_array(spans.documents),
                        to_array(spans.begins), to_array(spans.ends));
}

}  // namespace

void token_rows(py::module_& m) {
  py::class_<ShuffleRule>(m, "ShuffleRule", "Megatron's order of rows.",
                          py::is_final())
      .def(py::init([](std::uint32_t seed, std::int64_t row_tokens,
                       bool has_extra_token, std::size_t epochs,
                       std::size_t first_epochs, std::size_t rows,
                       std::size_t first_rows, std::int64_t tokens) {
             if (row_tokens < 1 || first_epochs > epochs || first_rows > rows) {
               throw py::value_error("not a rule for rows");
             }
             return ShuffleRule{seed,       row_tokens,   has_extra_token,
                                epochs,     first_epochs, rows,
                                first_rows, tokens};
           }),
           py::kw_only(), "seed"_a, "row_tokens"_a, "has_extra_token"_a,
           "epochs"_a, "first_epochs"_a, "rows"_a, "first_rows"_a, "tokens"_a);
  py::class_<TokenRows>(m, "TokenRows", "Rows of fixed length over documents.",
                        py::is_final())
      .def_static("chunked", &chunked, "lengths"_a, "longest"_a, "row_tokens"_a,
                  "documents"_a, "rows"_a, "place"_a)
      .def_static("shuffled", &shuffled, "lengths"_a, "longest"_a, "rule"_a,
                  "place"_a)
      .def_property_readonly("num_rows", &TokenRows::size)
      .def_property_readonly("has_index_file", &TokenRows::has_file)
      .def_property_readonly("index_path",
                             [](const TokenRows& self) {
                               return unlocked([&] { return self.path(); });
                             })
      .def("rows", &rows, "keys"_a,
           "Return the spans of rows: the first span of each row and the number"
           " of spans, and the document, begin and end of each span.")
      .def(
          "array",
          [](const TokenRows& all, std::size_t i) {
            const auto bytes = all.array(i);
            return py::bytes(reinterpret_cast<const char*>(bytes.data()),
                             bytes.size());
          },
          "i"_a, "Copy an array of the index, for tests.");
  m.def("summarize_lengths", &summarize_lengths, "lengths"_a,
        "Return the sum, the largest, and a hash of lengths.");
}

}  // namespace gristmill::bind
