// Binds core/lines/frame_stream.hpp.
#include <string>
#include <tuple>

#include "bindings/files/record_reader.hpp"
#include "core/lines/frame_stream.hpp"

namespace gristmill::bind {
namespace {

std::unique_ptr<FrameStream> create(const std::string& compression) {
  if (compression == "gzip") {
    return checked(FrameStream::create(Compression::kGzip));
  }
  if (compression == "zstd") {
    return checked(FrameStream::create(Compression::kZstd));
  }
  throw py::value_error("compression must be 'gzip' or 'zstd', got '" +
                        compression + "'");
}

// Keeps the GIL, because another thread might use the stream.
std::tuple<std::size_t, std::size_t, bool> step(FrameStream& stream,
                                                const py::buffer& from,
                                                const py::buffer& to) {
  const auto source = from.request();
  const auto target = to.request(/*writable=*/true);
  const auto [num_read, num_written, is_frame_end] = checked_file(
      stream.step({static_cast<const std::byte*>(source.ptr),
                   static_cast<std::size_t>(source.size * source.itemsize)},
                  {static_cast<std::byte*>(target.ptr),
                   static_cast<std::size_t>(target.size * target.itemsize)}));
  return {num_read, num_written, is_frame_end};
}

}  // namespace

void frame_stream(py::module_& m) {
  py::class_<FrameStream>(m, "FrameStream",
                          "Decompresses gzip members or zstd frames.")
      .def(py::init(&create), "compression"_a)
      .def(
          "step", &step, "from_"_a, "to"_a,
          "Decompress contiguous bytes up to the end of a frame, of `from_` or "
          "of `to`.\nReturn the number of bytes read, of bytes written, and "
          "whether a frame\nends.");
}

}  // namespace gristmill::bind
