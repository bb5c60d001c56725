#include "core/files/fetched_read.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <vector>

#include "core/files/file.hpp"
#include "core/files/file_reader.hpp"

namespace gristmill {
namespace {

using Run = RecordReader::Run;
using Bytes = Result<std::span<const std::byte>>;

// Decodes the records of a run whose bytes have arrived.
Status decode_run(const Run& run, Bytes& bytes, RecordReader::Sink& sink) {
  if (!bytes.ok()) {
    return run.reader->add_record_context(bytes.status(),
                                          run.requests.front().record);
  }
  const FileReader::PrefetchedBytes prefetched(*run.reader,
                                               {run.begin, bytes.value()});
  return run.reader->read(run.requests, sink);
}

}  // namespace

Status read_fetched(const RecordReader& reader,
                    std::span<const RecordReader::Request> requests,
                    RecordReader::Sink& sink,
                    const std::function<bool()>& should_continue) {
  std::vector<Run> runs;
  TRY(reader.add_runs(requests, runs));
  std::vector<File::Range> ranges;
  std::vector<std::size_t> run_of_range;  // The run of each range.
  // The status of each run.  The runs are in the order of the records of each
  // file.
  std::vector<Status> statuses(runs.size());
  for (std::size_t k = 0; k < runs.size(); ++k) {
    const Run& run = runs[k];
    if (run.begin == run.end) continue;
    statuses[k] = Status::system(ECANCELED, "not read");
    ranges.push_back({&run.reader->file(), run.begin, run.end});
    run_of_range.push_back(k);
  }
  const auto decode_arrived = [&](std::size_t k, Bytes bytes) {
    statuses[run_of_range[k]] = decode_run(runs[run_of_range[k]], bytes, sink);
    return should_continue();
  };
  if (!ranges.empty()) {
    ranges.front().file->fetcher()->fetch(ranges, decode_arrived);
  }
  for (std::size_t k = 0; k < runs.size() && should_continue(); ++k) {
    if (runs[k].begin != runs[k].end) continue;
    statuses[k] = runs[k].reader->read(runs[k].requests, sink);
  }
  const auto failed =
      std::ranges::find_if(statuses, [](const Status& s) { return !s.ok(); });
  return failed == statuses.end() ? Status() : *failed;
}

}  // namespace gristmill
