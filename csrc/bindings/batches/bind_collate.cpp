// Binds core/batches/collate.hpp: checks the arrays, releases the GIL, passes
// bytes.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/batches/batch_arrays.hpp"
#include "bindings/bind.hpp"
#include "core/base/pool.hpp"
#include "core/batches/collate.hpp"

namespace gristmill::bind {
namespace {

// The checked arguments of a gather.  The caller keeps the arrays alive.
struct Gather {
  std::span<const std::byte> table;
  std::int64_t table_rows = 0;
  std::span<const std::int64_t> rows;
  std::size_t row_bytes = 0;
  std::span<std::byte> out;

  [[nodiscard]] std::ptrdiff_t run() const noexcept {
    return gristmill::gather(table, table_rows, rows, row_bytes, out);
  }
  // Returns the part of this gather for the rows [first, first + count).
  [[nodiscard]] Gather part(std::size_t first, std::size_t count) const {
    return {table, table_rows, rows.subspan(first, count), row_bytes,
            out.subspan(first * row_bytes, count * row_bytes)};
  }
};

Gather check_gather(const py::array& table, const Rows& rows,
                    const py::array& out) {
  if (table.ndim() == 0) {
    throw py::value_error("table must have at least one dimension, got 0");
  }
  if (rows.ndim() != 1) {
    throw py::value_error(
        concat("rows must have one dimension, got ", rows.ndim()));
  }
  check_plain(table, "table");
  check_batch(out, static_cast<std::size_t>(rows.size()));
  if (!same_dtype(table.dtype().ptr(), out.dtype().ptr()) ||
      !std::ranges::equal(shape_of(table).subspan(1),
                          shape_of(out).subspan(1))) {
    throw py::value_error("out must have the dtype and row shape of table");
  }
  if (!is_aligned(rows)) throw py::value_error("rows must be aligned");
  const Gather job{{bytes_of(table), static_cast<std::size_t>(table.nbytes())},
                   table.shape(0),
                   {rows.data(), static_cast<std::size_t>(rows.size())},
                   row_bytes_of(table),
                   {static_cast<std::byte*>(const_cast<void*>(out.data())),
                    static_cast<std::size_t>(out.nbytes())}};
  check_no_overlap(job.out, job.table, "table");
  check_no_overlap(job.out, std::as_bytes(job.rows), "rows");
  return job;
}

void raise_bad_row(const Gather& job, std::ptrdiff_t bad) {
  if (bad < 0) return;
  throw py::index_error(concat("rows[", bad, "] must be in [0, ",
                               job.table_rows, "), got ",
                               job.rows[static_cast<std::size_t>(bad)]));
}

void gather_rows(const py::array& table, const Rows& rows, py::array& out) {
  const Gather job = check_gather(table, rows, out);
  const std::ptrdiff_t bad =
      unlocked_from(kUnlockBytes, job.out.size(), [&] { return job.run(); });
  raise_bad_row(job, bad);
}

// A gather in the threads of a pool.  It keeps the arrays alive.  The arrays
// must not change until wait() returns.
class PendingGather {
 public:
  PendingGather(Pool& pool, py::array table, Rows rows, py::array out)
      : arrays_{std::move(table), std::move(rows), std::move(out)},
        job_(check_gather(std::get<0>(arrays_), std::get<1>(arrays_),
                          std::get<2>(arrays_))) {
    const std::size_t count = job_.rows.size();
    const std::size_t parts = std::min(count, pool.threads());
    for (std::size_t i = 0; i < parts; ++i) {
      const std::size_t first = count * i / parts;
      const std::size_t last = count * (i + 1) / parts;
      pool.run(group_, [this, first, last] { run_part(first, last); });
    }
  }
  ~PendingGather() {
    static_cast<void>(unlocked([&] { return group_.wait(); }));
  }
  PendingGather(const PendingGather&) = delete;
  PendingGather& operator=(const PendingGather&) = delete;

  void wait() {
    unlocked([&] {
      // In a forked child the threads are missing, and `out` is a copy.
      if (!group_.wait()) run_part(0, job_.rows.size());
    });
    const std::size_t bad = first_bad_row_.load();
    if (bad < job_.rows.size()) {
      raise_bad_row(job_, static_cast<std::ptrdiff_t>(bad));
    }
  }

 private:
  void run_part(std::size_t first, std::size_t last) noexcept {
    const std::ptrdiff_t at = job_.part(first, last - first).run();
    if (at < 0) return;
    const std::size_t bad = first + static_cast<std::size_t>(at);
    std::size_t smallest = first_bad_row_.load();
    while (bad < smallest &&
           !first_bad_row_.compare_exchange_weak(smallest, bad)) {
    }
  }

  const std::tuple<py::array, Rows, py::array> arrays_;
  const Gather job_;
  std::atomic<std::size_t> first_bad_row_{
      std::numeric_limits<std::size_t>::max()};
  // Last member, so that it is destroyed first: its tasks use the others.
  TaskGroup group_;
};

// Sets `parts` to the addresses of all elements and returns -1.  If an element
// is not a row of `out`, returns the position of the first such element.
py::ssize_t find_parts(const py::list& elements, const py::array& out,
                       std::span<const std::byte*> parts) {
  const auto row_shape = shape_of(out).subspan(1);
  PyObject* const dtype = out.dtype().ptr();
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const auto at = static_cast<py::ssize_t>(k);
    const auto* array = exact_array(PyList_GET_ITEM(elements.ptr(), at));
    if (array == nullptr || !same_dtype(array->descr, dtype) ||
        !std::ranges::equal(shape_of(*array), row_shape)) {
      return at;
    }
    parts[k] = reinterpret_cast<const std::byte*>(array->data);
  }
  return -1;
}

py::ssize_t stack_arrays(const py::list& elements, py::array& out,
                         bool streaming) {
  check_batch(out, elements.size());
  std::vector<const std::byte*> parts(elements.size());
  const auto misfit = find_parts(elements, out, parts);
  if (misfit >= 0) return misfit;
  const auto row_bytes = row_bytes_of(out);
  auto* const to = static_cast<std::byte*>(out.mutable_data());
  const std::size_t bytes = parts.size() * row_bytes;
  // Another thread may change the list after the GIL is released.
  const py::tuple elements_to_keep =
      bytes < kUnlockBytes ? py::tuple() : py::tuple(elements);
  unlocked_from(kUnlockBytes, bytes,
                [&] { gristmill::stack(parts, row_bytes, to, streaming); });
  return -1;
}

// Returns the Python type whose scalars np.stack stores as `dtype`, besides the
// dtype's own scalar type, or nullptr if there is none.
PyTypeObject* builtin_type_of(const py::dtype& dtype) {
  switch (dtype.num()) {
    case py::detail::npy_api::NPY_BOOL_:
      return &PyBool_Type;
    case py::detail::npy_api::NPY_DOUBLE_:
      return &PyFloat_Type;
    default:
      break;
  }
  const bool is_int64 = dtype.kind() == 'i' && dtype.itemsize() == 8;
  return is_int64 ? &PyLong_Type : nullptr;
}

// Stores a bool, float or int as an item of the dtype of builtin_type_of().
// Returns false if an int does not fit.
bool store_builtin(PyObject* element, std::byte* to) {
  if (PyBool_Check(element)) {
    const bool value = element == Py_True;
    std::memcpy(to, &value, sizeof value);
  } else if (PyFloat_CheckExact(element)) {
    const double value = PyFloat_AS_DOUBLE(element);
    std::memcpy(to, &value, sizeof value);
  } else {
    int overflow = 0;
    const std::int64_t value = PyLong_AsLongLongAndOverflow(element, &overflow);
    if (overflow != 0) return false;
    std::memcpy(to, &value, sizeof value);
  }
  return true;
}

py::ssize_t stack_scalars(const py::list& elements, py::array& out) {
  check_batch(out, elements.size());
  const auto dtype = out.dtype();
  if (out.ndim() != 1) throw py::value_error("out must have one dimension");
  if (elements.empty()) return -1;
  const bool is_plain =
      std::string_view("biufc").find(dtype.kind()) != std::string_view::npos &&
      dtype.byteorder() != '>';
  PyTypeObject* const type = Py_TYPE(PyList_GET_ITEM(elements.ptr(), 0));
  const bool is_builtin = is_plain && type == builtin_type_of(dtype);
  const py::object scalar_type = dtype.attr("type");
  const bool is_numpy_scalar =
      is_plain && scalar_type.is(py::type::handle_of(elements[0]));
  if (!is_builtin && !is_numpy_scalar) return 0;
  const auto item_bytes = static_cast<std::size_t>(dtype.itemsize());
  auto* to = static_cast<std::byte*>(out.mutable_data());
  for (py::ssize_t k = 0; k < out.shape(0); ++k, to += item_bytes) {
    PyObject* const element = PyList_GET_ITEM(elements.ptr(), k);
    if (Py_TYPE(element) != type) return k;
    if (!is_builtin) {
      // A NumPy scalar is an object header followed by the value.
      std::memcpy(to, reinterpret_cast<std::byte*>(element) + sizeof(PyObject),
                  item_bytes);
    } else if (!store_builtin(element, to)) {
      return k;
    }
  }
  return -1;
}

}  // namespace

void collate(py::module_& m) {
  m.def(
      "gather", &gather_rows, "table"_a, "rows"_a.noconvert(),
      "out"_a.noconvert(),
      "Write table[rows] to out.  table has shape (N, *S), rows are int64 of\n"
      "shape (B,), and out has shape (B, *S).");
  py::class_<PendingGather>(m, "PendingGather",
                            "A gather() by threads of a Pool.")
      .def(py::init<Pool&, py::array, Rows, py::array>(), "pool"_a, "table"_a,
           "rows"_a.noconvert(), "out"_a.noconvert(), py::keep_alive<1, 2>())
      .def("wait", &PendingGather::wait,
           "Wait until `out` is filled.  Raises IndexError like gather().");
  m.def(
      "stack", &stack_arrays, "elements"_a, "out"_a.noconvert(),
      "streaming"_a = false,
      "Write B arrays of shape S to out of shape (B, *S).  If `streaming`,\n"
      "bypass the caches.  Return -1, or the index of the first element that\n"
      "does not fit.");
  m.def(
      "stack_scalars", &stack_scalars, "elements"_a, "out"_a.noconvert(),
      "Write B scalars of one exact type to out of shape (B,).  Return -1, or\n"
      "the index of the first element that does not fit.");
}

}  // namespace gristmill::bind
