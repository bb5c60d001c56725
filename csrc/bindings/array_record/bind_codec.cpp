// Binds core/array_record/codec.hpp.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "bindings/bind.hpp"
#include "core/array_record/codec.hpp"

namespace gristmill::bind {
namespace {

Codec codec_named(const std::string& name) {
  for (const Codec codec : {Codec::kBrotli, Codec::kZstd, Codec::kSnappy}) {
    if (name == name_of(codec)) return codec;
  }
  throw py::value_error("codec must be brotli, zstd or snappy, got " + name);
}

py::bytes decompress_bytes(const std::string& name, const py::bytes& data,
                           std::size_t size) {
  const Codec codec = codec_named(name);
  const std::string_view from = data;
  auto bytes = py::reinterpret_steal<py::bytes>(
      PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(size)));
  if (!bytes) throw py::error_already_set();
  const std::span<std::byte> to(
      reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes.ptr())), size);
  check(unlocked(
      [&] { return decompress(codec, std::as_bytes(std::span(from)), to); }));
  return bytes;
}

}  // namespace

void codec(py::module_& m) {
  m.def("decompress", &decompress_bytes, "codec"_a, "data"_a, "size"_a,
        "Decompress data to `size` bytes.\n\n"
        "Raises:\n"
        "    ValueError: The data are damaged, or have another size.");
}

}  // namespace gristmill::bind
