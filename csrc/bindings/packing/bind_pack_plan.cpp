// Binds core/packing/pack_plan.hpp.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/indices/positions.hpp"
#include "bindings/tokens/document_lengths.hpp"
#include "core/packing/pack_plan.hpp"
#include "core/packing/row_order.hpp"

namespace gristmill::bind {
namespace {

using Options = PackPlan::Options;

template <class Value, std::size_t kSize>
using Names = std::array<std::pair<std::string_view, Value>, kSize>;

constexpr Names<PackMethod, 4> kMethods{{
    {"best_fit", PackMethod::kBestFit},
    {"first_fit", PackMethod::kFirstFit},
    {"longest_first", PackMethod::kLongestFirst},
    {"split", PackMethod::kSplit},
}};

constexpr Names<LongDocuments, 2> kLongDocuments{{
    {"cut", LongDocuments::kCut},
    {"drop", LongDocuments::kDrop},
}};

// Returns the value with a name.
template <class Table>
auto value_of(const Table& table, const std::string& name,
              const char* argument) {
  std::string names;
  for (const auto& [known, value] : table) {
    if (known == name) return value;
    names += concat(names.empty() ? "" : ", ", "\"", known, "\"");
  }
  throw py::value_error(
      concat(argument, " must be one of ", names, ", got \"", name, "\""));
}

// Returns the name of a value.
template <class Table, class Value>
py::str name_of(const Table& table, Value value) {
  std::size_t i = 0;
  while (table[i].second != value) ++i;
  return {table[i].first.data(), table[i].first.size()};
}

using Costs = py::array_t<double, py::array::c_style | py::array::forcecast>;

// Name, lengths and capacity.
using Extra = std::tuple<std::string, py::array, std::int64_t>;

// A plan, and the arrays that it refers to.
struct PlanHandle {
  py::array lengths;
  std::vector<Extra> extras;
  std::unique_ptr<PackPlan> plan;
};

// Returns the numbers.  An empty array would mean that there are none.
std::vector<double> vector_of(const Costs& costs) {
  if (costs.ndim() != 1 || costs.size() == 0) {
    throw py::value_error("costs must have one dimension, and not be empty");
  }
  return {costs.data(), costs.data() + costs.size()};
}

PlanHandle make_plan(const py::array& lengths, std::int64_t capacity,
                     const std::string& method,
                     const std::string& long_documents, std::int64_t window,
                     std::optional<std::uint32_t> seed, std::int64_t num_epochs,
                     const std::optional<Costs>& span_costs,
                     std::int64_t group_rows, const std::string& counts_path,
                     const std::vector<Extra>& extras) {
  const auto view = view_of_lengths(lengths);
  Options options{
      .capacity = capacity,
      .method = value_of(kMethods, method, "method"),
      .long_documents =
          value_of(kLongDocuments, long_documents, "long_documents"),
      .window = window,
      .seed = seed,
      .epochs = num_epochs,
      .span_costs = span_costs ? vector_of(*span_costs) : std::vector<double>(),
      .group_rows = group_rows,
      .counts_path = counts_path};
  for (const auto& [name, cells, extra_capacity] : extras) {
    options.extras.push_back({.name = name,
                              .lengths = view_of_lengths(cells),
                              .capacity = extra_capacity});
  }
  return {lengths, extras,
          checked(unlocked([&] { return PackPlan::of(view, options); }))};
}

Indices array_of(const std::vector<std::int64_t>& numbers) {
  return Indices(static_cast<py::ssize_t>(numbers.size()), numbers.data());
}

py::tuple rows(const PlanHandle& self, const Positions& keys) {
  auto copy = copy_of(keys);
  const auto all = numbers(copy);
  const auto found = checked(unlocked([&] { return self.plan->rows(all); }));
  return py::make_tuple(array_of(found.offsets), array_of(found.documents),
                        array_of(found.begins), array_of(found.ends));
}

Indices epochs(const PlanHandle& self, const Positions& keys) {
  auto out = copy_of(keys);
  const auto all = numbers(out);
  check(unlocked([&] { return self.plan->epochs(all); }));
  return out;
}

Costs costs(const PlanHandle& self, const Positions& keys) {
  auto copy = copy_of(keys);
  const auto all = numbers(copy);
  const auto found = checked(unlocked([&] { return self.plan->costs(all); }));
  return Costs(static_cast<py::ssize_t>(found.size()), found.data());
}

// Returns rows of shape (ranks, rows per rank).
Indices deal(const Costs& costs, std::int64_t ranks) {
  const auto all = vector_of(costs);
  if (ranks < 1 || costs.size() % ranks != 0) {
    throw py::value_error(concat("ranks must divide the ", costs.size(),
                                 " rows of a step, got ", ranks));
  }
  for (std::size_t row = 0; row < all.size(); ++row) {
    if (std::isnan(all[row])) {
      throw py::value_error(
          concat("costs must not be NaN, got NaN for row ", row));
    }
  }
  const auto dealt =
      unlocked([&] { return deal_rows(all, static_cast<std::size_t>(ranks)); });
  Indices out({ranks, costs.size() / ranks});
  std::ranges::copy(dealt, out.mutable_data());
  return out;
}

std::int64_t first_row(const PlanHandle& self, std::int64_t epoch) {
  return checked(unlocked([&] { return self.plan->first_row(epoch); }));
}

std::int64_t num_rows(const PlanHandle& self) {
  return first_row(self, self.plan->options().epochs);
}

py::dict totals(const PlanHandle& self) {
  const LengthTotals& totals = self.plan->totals();
  return py::dict("documents"_a = totals.documents, "tokens"_a = totals.tokens,
                  "empty_documents"_a = totals.empty_documents,
                  "long_documents"_a = totals.long_documents,
                  "long_tokens"_a = totals.long_tokens, "hash"_a = totals.hash);
}

py::tuple state_of(const PlanHandle& self) {
  const Options& options = self.plan->options();
  return py::make_tuple(
      self.lengths, options.capacity, name_of(kMethods, options.method),
      name_of(kLongDocuments, options.long_documents), options.window,
      options.seed, options.epochs,
      options.span_costs.empty()
          ? py::object(py::none())
          : Costs(static_cast<py::ssize_t>(options.span_costs.size()),
                  options.span_costs.data()),
      options.group_rows, options.counts_path,
      array_of(self.plan->window_ends()), self.extras);
}

PlanHandle plan_from(const py::tuple& state) {
  PlanHandle self = make_plan(
      state[0].cast<py::array>(), state[1].cast<std::int64_t>(),
      state[2].cast<std::string>(), state[3].cast<std::string>(),
      state[4].cast<std::int64_t>(),
      state[5].cast<std::optional<std::uint32_t>>(),
      state[6].cast<std::int64_t>(), state[7].cast<std::optional<Costs>>(),
      state[8].cast<std::int64_t>(), state[9].cast<std::string>(),
      state[11].cast<std::vector<Extra>>());
  auto ends = copy_of(state[10].cast<Positions>());
  check(self.plan->add_window_ends(numbers(ends)));
  return self;
}

}  // namespace

void pack_plan(py::module_& m) {
  py::class_<PlanHandle>(m, "PackPlan",
                         "A plan that maps rows to spans of documents.",
                         py::is_final())
      .def(py::init(&make_plan), "lengths"_a, "capacity"_a, py::kw_only(),
           "method"_a = "best_fit", "long_documents"_a = "cut",
           "window"_a = std::int64_t{1} << 18, "seed"_a = py::none(),
           "num_epochs"_a = 1, "span_costs"_a = py::none(), "group_rows"_a = 1,
           "counts_path"_a = "", "extras"_a = std::vector<Extra>())
      .def_property_readonly("num_rows", &num_rows,
                             "The number of rows of all epochs.  Counts those\n"
                             "that have not been counted.")
      .def_property_readonly("totals", &totals,
                             "Sums over the documents, and their hash.")
      .def("first_row", &first_row, "epoch"_a,
           "Return the first row of an epoch, counted through all epochs, or\n"
           "num_rows for the epoch after the last one.")
      .def(
          "rows", &rows, "keys"_a.noconvert(),
          "Return (offsets, documents, begins, ends), all int64.  Row keys[i]\n"
          "has the spans offsets[i] to offsets[i + 1]; each is the tokens\n"
          "[begin, end) of a document.")
      .def("epochs", &epochs, "keys"_a.noconvert(),
           "Return the epochs of rows, int64 of shape (n,).")
      .def("costs", &costs, "keys"_a.noconvert(),
           "Return the costs of rows, float64 of shape (n,).")
      .def(py::pickle(&state_of, &plan_from));
  m.def("deal", &deal, "costs"_a, "ranks"_a,
        "Return the rows of each rank, int64 of shape (ranks, n // ranks), so\n"
        "that the sums of the costs of the n rows are similar.");
}

}  // namespace gristmill::bind
