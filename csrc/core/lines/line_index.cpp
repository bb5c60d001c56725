#include "core/lines/line_index.hpp"

#include <utility>

#include "core/files/file_scan.hpp"
#include "core/files/shared_index.hpp"
#include "core/lines/line_collector.hpp"

namespace gristmill {

Result<PackedChunks> scan_lines(const File& file, ScanProgress& progress) {
  LineCollector lines;
  TRY(scan_file(file, 0, progress, [&](std::uint64_t at, auto window) {
    lines.add_window(at, window);
    return Status();
  }));
  return lines.finish(file.size());
}

Result<std::unique_ptr<const SpanIndex>> line_index(
    const File& file, std::uint64_t kind,
    std::span<const std::string> index_paths, const ScanLines& scan) {
  auto [records, path] =
      TRY(load_or_scan_places(file, kind, index_paths, scan));
  return std::unique_ptr<const SpanIndex>(
      std::make_unique<ScannedIndex>(std::move(records), std::move(path)));
}

}  // namespace gristmill
