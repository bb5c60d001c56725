// Binds core/indices/plan.hpp, and converts plans to tuples and back.
#include <pybind11/stl.h>

#include <cstdint>
#include <span>
#include <string>

#include "bindings/bind.hpp"
#include "bindings/indices/positions.hpp"
#include "core/indices/plan.hpp"

namespace gristmill::bind {
namespace {

using Kind = KeyPlan::Kind;

// With fewer keys than this, releasing the GIL takes longer than the work.
constexpr std::size_t kUnlockKeys = 64;

// Converts a function that returns a Result to one that raises.
template <class T, class... Args>
auto method(Result<T> (*call)(Args...)) {
  return [call](Args... args) { return checked(call(args...)); };
}
template <class T, class... Args>
auto method(Result<T> (KeyPlan::*call)(Args...) const) {
  return [call](const KeyPlan& self, Args... args) {
    return checked((self.*call)(args...));
  };
}

void fill(const KeyPlan& plan, std::int64_t first, std::int64_t step,
          Indices& out) {
  if (out.ndim() != 1) throw py::value_error("out must have one dimension");
  if (!is_aligned(out)) throw py::value_error("out must be aligned");
  const std::span keys(out.mutable_data(),
                       static_cast<std::size_t>(out.size()));
  check(unlocked_from(kUnlockKeys, keys.size(),
                      [&] { return plan.fill(first, step, keys); }));
}

Indices keys(const KeyPlan& plan, const Positions& positions) {
  auto out = copy_of(positions);
  const auto all = numbers(out);
  check(unlocked_from(kUnlockKeys, all.size(), [&] { return plan.keys(all); }));
  return out;
}

// Returns the name and the arguments of the method that adds the operation.
py::tuple describe(const KeyPlan::Op& op) {
  switch (op.kind) {
    case Kind::kRange:
      return py::make_tuple("range", op.length, op.first, op.step);
    case Kind::kPositions:
      return py::make_tuple("positions", op.length);
    case Kind::kShard:
      return py::make_tuple("shard", op.first, op.first + op.length);
    case Kind::kShuffle:
      return py::make_tuple("shuffle", op.seed);
    case Kind::kRepeat:
      return py::make_tuple(
          "repeat",
          op.epochs == 0 ? py::none() : py::object(py::int_(op.epochs)),
          op.reseed);
    case Kind::kSlice:
      return py::make_tuple("take", op.first, op.step, op.length);
  }
  return py::tuple();
}

py::tuple describe_all(const KeyPlan& plan) {
  py::list all;
  for (const auto& op : plan.ops()) all.append(describe(op));
  return py::tuple(all);
}

// Builds a plan from the result of describe_all().  The methods check their
// arguments again.
KeyPlan rebuild(const py::tuple& ops) {
  py::object plan = py::type::of<KeyPlan>();
  for (const auto& op : ops) {
    const auto call = py::cast<py::tuple>(op);
    const auto args = py::cast<py::tuple>(call[py::slice(1, {}, {})]);
    plan = plan.attr(call[0])(*args);
  }
  return plan.cast<KeyPlan>();
}

std::string repr_of(const KeyPlan& plan) {
  std::string text = "KeyPlan";
  for (const auto& op : plan.ops()) {
    const auto call = describe(op);
    const auto args = py::cast<py::tuple>(call[py::slice(1, {}, {})]);
    text += '.';
    text += call[0].cast<std::string>();
    text += '(';
    for (std::size_t i = 0; i < args.size(); ++i) {
      if (i > 0) text += ", ";
      text += py::repr(args[i]).cast<std::string>();
    }
    text += ')';
  }
  return text;
}

}  // namespace

void plan(py::module_& m) {
  py::class_<KeyPlan>(m, "KeyPlan",
                      "An immutable formula from positions to record keys.")
      .def_static("range", method(&KeyPlan::range), "count"_a, "start"_a = 0,
                  "step"_a = 1,
                  "Return a plan of `count` keys: start, start + step, ....")
      .def_static("positions", method(&KeyPlan::positions), "count"_a,
                  "Return a plan whose keys are the positions, in epochs of\n"
                  "`count` keys.")
      .def("shard", method(&KeyPlan::shard), "first"_a, "last"_a,
           "Return a plan of the offsets [first, last) of each epoch.")
      .def("shuffle", method(&KeyPlan::shuffle), "seed"_a,
           "Return a plan that permutes epoch e with the seed\n"
           "(seed + e) mod 2**32.")
      .def("repeat", method(&KeyPlan::repeat), "epochs"_a = py::none(),
           "reseed"_a = true,
           "Return a plan that joins `epochs` epochs to one; None\n"
           "repeats forever.")
      .def("take", method(&KeyPlan::slice), "first"_a, "step"_a, "count"_a,
           "Return a plan of `count` offsets of each epoch: first,\n"
           "first + step, ....")
      .def("key", method(&KeyPlan::key), "position"_a,
           "Return the key at any int64 position.")
      .def("fill", &fill, "first"_a, "step"_a, "out"_a.noconvert(),
           "Set out[k] to key(first + k * step).  out is int64 of shape (n,).")
      .def("keys", &keys, "positions"_a.noconvert(),
           "Return the keys, int64 of shape (n,), at any int64 positions.")
      .def_property_readonly("ops", &describe_all,
                             "The operations as tuples (name, *arguments).")
      .def("__len__", &KeyPlan::length)
      .def("__repr__", &repr_of)
      .def("__hash__",
           [](const KeyPlan& self) { return py::hash(describe_all(self)); })
      .def("__eq__",
           [](const KeyPlan& self, const py::object& other) {
             return py::isinstance<KeyPlan>(other) &&
                    self == other.cast<const KeyPlan&>();
           })
      .def(py::pickle(&describe_all, &rebuild));
}

}  // namespace gristmill::bind
