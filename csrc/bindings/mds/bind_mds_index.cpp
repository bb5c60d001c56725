// Binds core/mds/mds_index.hpp.
#include "bindings/files/span_file.hpp"
#include "core/mds/mds_index.hpp"

namespace gristmill::bind {
namespace {

std::unique_ptr<SpanHandle> open_shard(const py::object& object,
                                       const std::string& access,
                                       std::uint64_t samples,
                                       std::uint64_t bytes) {
  const bool is_local = py::isinstance<py::str>(object);
  File::Ptr file = open_file(object, access);
  File::Ptr list = open_file(object, is_local ? "mmap" : access);
  std::shared_ptr<const MdsIndex> index = checked_file(unlocked(
      [&] { return MdsIndex::open(std::move(list), {samples, bytes}); }));
  return std::make_unique<SpanHandle>(std::make_shared<const SpanFile>(
      std::move(file), std::move(index), "sample"));
}

}  // namespace

void mds_index(py::module_& m) {
  m.def("open_mds_shard", &open_shard, "file"_a, "access"_a, "samples"_a,
        "bytes"_a,
        "Open a shard of MosaicML Streaming, which has the given numbers of\n"
        "samples and bytes.  Its records are the samples.");
}

}  // namespace gristmill::bind
