#include "core/files/file_scan.hpp"

#include <algorithm>
#include <cerrno>

#include "core/base/byte_buffer.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

// Sizes of windows of local and of remote files.  A local window stays in the
// second-level cache; the latency of a remote read equals the transfer time of
// several megabytes.
constexpr std::uint64_t kLocalWindowBytes = std::uint64_t{256} << 10;
constexpr std::uint64_t kRemoteWindowBytes = std::uint64_t{8} << 20;

}  // namespace

Status scan_file(const File& file, std::uint64_t begin, ScanProgress& progress,
                 const VisitWindow& visit) {
  const std::uint64_t window =
      file.hints().parallel > 1 ? kRemoteWindowBytes : kLocalWindowBytes;
  ByteBuffer bytes;
  for (std::uint64_t at = begin; at < file.size(); at += window) {
    progress.done_bytes.store(at, std::memory_order_relaxed);
    if (progress.cancelled.load(std::memory_order_relaxed)) {
      return Status::system(ECANCELED, "indexing was cancelled");
    }
    if (!bytes.reset(std::min(window, file.size() - at))) {
      return no_memory_for("a window of the file");
    }
    TRY(file.read(at, bytes.all()));
    TRY(visit(at, bytes.all()));
  }
  progress.done_bytes.store(file.size(), std::memory_order_relaxed);
  return {};
}

}  // namespace gristmill
