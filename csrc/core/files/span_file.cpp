#include "core/files/span_file.hpp"

#include <algorithm>

#include "core/files/verify.hpp"

namespace gristmill {

FileReader::Extent SpanFile::extent(std::int64_t record) const {
  const auto span = index_->at(static_cast<std::uint64_t>(record));
  const std::uint64_t begin = std::min(span.begin, file().size());
  return {begin, std::clamp(span.end, begin, file().size())};
}

std::string SpanFile::describe(std::int64_t record) const {
  const auto span = index_->at(static_cast<std::uint64_t>(record));
  return concat(noun_, " ", record, " at offset ", span.begin);
}

Status SpanFile::check(std::int64_t record) const {
  const auto span = index_->at(static_cast<std::uint64_t>(record));
  if (span.begin <= span.end && span.end <= file().size()) return {};
  const std::string& index = index_->path();
  const std::string other = index.empty() ? " or written over"
                                          : concat(", or its index ", index,
                                                   " belongs to another file");
  return add_record_context(
      damaged("the index lists the bytes ", span.begin, " to ", span.end,
              ", expected a range within the ", file().size(),
              " bytes of the file: it was cut off", other),
      record);
}

Status SpanFile::sizes(std::span<const Request> requests,
                       std::span<std::int64_t> sizes) const {
  for (const Request& request : requests) {
    TRY(check(request.record));
    const Extent at = extent(request.record);
    sizes[request.slot] = static_cast<std::int64_t>(at.end - at.begin);
  }
  return {};
}

Status SpanFile::read(std::span<const Request> requests, Sink& sink) const {
  for (const Request& request : requests) TRY(check(request.record));
  return read_runs(requests, [&](const Request& request, const RawBytes& run) {
    const Extent at = extent(request.record);
    const auto bytes = run.from(at.begin).bytes.first(at.end - at.begin);
    auto to = sink.place(request.slot, bytes.size());
    if (!to.ok()) return add_record_context(to.status(), request.record);
    std::ranges::copy(bytes, to.value().begin());
    return Status();
  });
}

}  // namespace gristmill
