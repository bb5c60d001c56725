#include "bindings/files/record_memory.hpp"

#include <memory>
#include <numeric>
#include <utility>

#include "bindings/files/record_reader.hpp"

namespace gristmill::bind {
namespace {

py::ssize_t length_of(std::size_t value) {
  return static_cast<py::ssize_t>(value);
}

// Creates a list of bytes objects.
Memory new_list(std::span<const std::int64_t> sizes) {
  py::list list(sizes.size());
  std::vector<std::span<std::byte>> places;
  places.reserve(sizes.size());
  for (const std::int64_t size : sizes) {
    PyObject* const bytes = PyBytes_FromStringAndSize(nullptr, length_of(size));
    if (bytes == nullptr) throw py::error_already_set();
    PyList_SET_ITEM(list.ptr(), length_of(places.size()), bytes);
    places.emplace_back(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes)),
                        size);
  }
  return {std::move(list), std::move(places)};
}

// Creates an array of all bytes, and an array with the offset of each record.
Memory new_arrays(std::span<const std::int64_t> sizes) {
  Records offsets(length_of(sizes.size() + 1));
  std::int64_t* const at = offsets.mutable_data();
  at[0] = 0;
  std::partial_sum(sizes.begin(), sizes.end(), at + 1);
  py::array_t<std::uint8_t> data(at[sizes.size()]);
  auto* to = reinterpret_cast<std::byte*>(data.mutable_data());
  std::vector<std::span<std::byte>> places;
  places.reserve(sizes.size());
  for (const std::int64_t size : sizes) {
    places.emplace_back(to, size);
    to += size;
  }
  return {py::make_tuple(std::move(data), std::move(offsets)),
          std::move(places)};
}

// Fails unless the sizes are multiples of an item.
void check_items(const RecordReader& reader,
                 std::span<const RecordReader::Request> requests,
                 std::span<const std::int64_t> sizes, const py::dtype& dtype) {
  const std::int64_t item_bytes = dtype.itemsize();
  for (const auto& [record, slot] : requests) {
    if (sizes[slot] % item_bytes == 0) continue;
    raise_corrupt(concat(reader.path(), ": record ", record, " has ",
                         sizes[slot], " bytes by the index, expected a ",
                         "multiple of ", item_bytes));
  }
}

// Creates a read-only array of `size` bytes.  If `data` is not null, the array
// is a view of it and keeps `owner` alive.
py::object new_token_array(const py::dtype& dtype, std::int64_t size,
                           const std::byte* data, const py::object& owner) {
  const auto& numpy = py::detail::npy_api::get();
  const py::ssize_t length = size / dtype.itemsize();
  auto array = py::reinterpret_steal<py::object>(numpy.PyArray_NewFromDescr_(
      numpy.PyArray_Type_, dtype.inc_ref().ptr(), 1, &length, nullptr,
      const_cast<std::byte*>(data), 0, nullptr));
  if (!array) throw py::error_already_set();
  py::detail::array_proxy(array.ptr())->flags &=
      ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  if (data != nullptr &&
      numpy.PyArray_SetBaseObject_(array.ptr(), owner.inc_ref().ptr()) != 0) {
    throw py::error_already_set();
  }
  return array;
}

// Creates a list of read-only arrays.
Memory new_token_list(std::span<const std::int64_t> sizes,
                      const py::dtype& dtype) {
  py::list list(sizes.size());
  std::vector<std::span<std::byte>> places;
  places.reserve(sizes.size());
  for (const std::int64_t size : sizes) {
    py::object array = new_token_array(dtype, size, nullptr, {});
    places.emplace_back(reinterpret_cast<std::byte*>(
                            py::detail::array_proxy(array.ptr())->data),
                        size);
    PyList_SET_ITEM(list.ptr(), length_of(places.size() - 1),
                    array.release().ptr());
  }
  return {std::move(list), std::move(places)};
}

}  // namespace

Memory new_memory(std::span<const std::int64_t> sizes, const Form& form) {
  if (form.packed) return new_arrays(sizes);
  if (form.dtype.is_none()) return new_list(sizes);
  return new_token_list(sizes, form.dtype);
}

Memory new_memory(const RecordReader& reader,
                  std::span<const RecordReader::Request> requests,
                  std::span<const std::int64_t> sizes, const Form& form) {
  if (!form.packed && !form.dtype.is_none()) {
    check_items(reader, requests, sizes, form.dtype);
  }
  return new_memory(sizes, form);
}

Memory view_records(const RecordReader& reader,
                    std::span<const RecordReader::Request> requests,
                    const py::dtype& dtype) {
  std::vector<RecordReader::View> views(requests.size());
  check_file(unlocked([&] { return reader.views(requests, views); }));
  std::vector<std::int64_t> sizes;
  sizes.reserve(views.size());
  for (const auto& view : views) {
    sizes.push_back(static_cast<std::int64_t>(view.bytes.size()));
  }
  check_items(reader, requests, sizes, dtype);
  py::list list(views.size());
  const void* last_owner = nullptr;
  py::object capsule;
  for (std::size_t k = 0; k < views.size(); ++k) {
    const auto& [owner, bytes] = views[k];
    if (owner.get() != last_owner) {
      last_owner = owner.get();
      capsule = py::capsule(
          new std::shared_ptr<const void>(owner), [](void* pointer) {
            delete static_cast<std::shared_ptr<const void>*>(pointer);
          });
    }
    PyList_SET_ITEM(list.ptr(), length_of(k),
                    new_token_array(dtype, sizes[k], bytes.data(), capsule)
                        .release()
                        .ptr());
  }
  return {std::move(list), {}};
}

}  // namespace gristmill::bind
