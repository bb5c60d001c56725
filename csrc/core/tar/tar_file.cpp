#include "core/tar/tar_file.hpp"

#include <algorithm>

#include "core/files/verify.hpp"
#include "core/tar/tar_sample.hpp"

namespace gristmill {

Result<std::shared_ptr<const TarFile>> TarFile::open(File::Ptr file,
                                                     const Options& options,
                                                     ScanProgress& progress) {
  TRY(check_stamp(*file, options.stamp));
  auto index = TarIndex::read(*file, options.index_paths, progress);
  if (!index.ok()) return add_file_context(*file, index.status());
  return std::shared_ptr<const TarFile>(
      new TarFile(std::move(file), std::move(index).value()));
}

Status TarFile::sizes(std::span<const Request> requests,
                      std::span<std::int64_t> sizes) const {
  for (const Request& request : requests) {
    const Extent range = extent(request.record);
    sizes[request.slot] = static_cast<std::int64_t>(range.end - range.begin);
  }
  return {};
}

std::string TarFile::describe(std::int64_t record) const {
  return concat("sample ", record, " at offset ", extent(record).begin);
}

Status TarFile::read(std::span<const Request> requests, Sink& sink) const {
  return read_runs(requests, [&](const Request& request, const RawBytes& run) {
    const Extent range = extent(request.record);
    const auto sample =
        run.from(range.begin).bytes.first(range.end - range.begin);
    return add_record_context(deliver(request, sample, sink), request.record);
  });
}

// Copies a sample after parsing its headers.  This detects a file that changed
// after its index was made.  Callers can rely on being able to parse the copy.
Status TarFile::deliver(const Request& request,
                        std::span<const std::byte> sample, Sink& sink) {
  TRY(TarSample::parse(sample));
  std::ranges::copy(sample,
                    TRY(sink.place(request.slot, sample.size())).begin());
  return {};
}

}  // namespace gristmill
