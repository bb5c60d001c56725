#include "core/bag/bag_file.hpp"

#include <algorithm>

#include "core/bag/zstd_record.hpp"
#include "core/files/verify.hpp"

namespace gristmill {

Result<std::shared_ptr<const BagFile>> BagFile::open(File::Ptr file,
                                                     const Options& options) {
  TRY(check_stamp(*file, options.stamp));
  auto limits = BagLimits::read(*file, options.limits.get());
  if (!limits.ok()) {
    const File& damaged_file = options.limits ? *options.limits : *file;
    return add_file_context(damaged_file, limits.status());
  }
  return std::shared_ptr<const BagFile>(new BagFile(
      std::move(file), std::move(limits).value(), options.compressed));
}

std::string BagFile::describe(std::int64_t record) const {
  return concat("record ", record, " at offset ", extent(record).begin);
}

// Calls `deliver` with the bytes of each record in the file.
Status BagFile::read_stored(
    std::span<const Request> requests,
    const std::function<Status(const Request&, std::span<const std::byte>)>&
        deliver) const {
  return read_runs(requests, [&](const Request& request, const RawBytes& run) {
    const Extent range = extent(request.record);
    const auto bytes =
        run.from(range.begin).bytes.first(range.end - range.begin);
    return add_record_context(deliver(request, bytes), request.record);
  });
}

Status BagFile::sizes(std::span<const Request> requests,
                      std::span<std::int64_t> sizes) const {
  if (compressed_) {
    return read_stored(requests, [&](const Request& request, auto bytes) {
      const std::uint64_t size = TRY(zstd_record_size(bytes));
      sizes[request.slot] = static_cast<std::int64_t>(size);
      return Status();
    });
  }
  for (const Request& request : requests) {
    const Extent range = extent(request.record);
    sizes[request.slot] = static_cast<std::int64_t>(range.end - range.begin);
  }
  return {};
}

Status BagFile::read(std::span<const Request> requests, Sink& sink) const {
  return read_stored(requests, [&](const Request& request, auto bytes) {
    if (compressed_) {
      const std::uint64_t size = TRY(zstd_record_size(bytes));
      const auto to = TRY(sink.place(request.slot, size));
      return read_zstd_record(bytes, to);
    }
    const auto to = TRY(sink.place(request.slot, bytes.size()));
    std::ranges::copy(bytes, to.begin());
    return Status();
  });
}

}  // namespace gristmill
