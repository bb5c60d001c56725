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
Status decode(const Run& run, Bytes& bytes, RecordReader::Sink& sink) {
  if (!bytes.ok()) {
    return run.reader->explain(bytes.status(), run.requests.front().record);
  }
  const FileReader::AtHand at_hand(*run.reader, {run.begin, bytes.value()});
  return run.reader->read(run.requests, sink);
}

}  // namespace

Status read_fetched(const RecordReader& reader,
                    std::span<const RecordReader::Request> requests,
                    RecordReader::Sink& sink,
                    const std::function<bool()>& wanted) {
  std::vector<Run> runs;
  TRY(reader.add_runs(requests, runs));
  std::vector<File::Range> ranges;
  std::vector<std::size_t> run_of;  // The run of each range.
  // The status of each run.  The runs are in the order of the records of each
  // file.
  std::vector<Status> statuses(runs.size());
  for (std::size_t k = 0; k < runs.size(); ++k) {
    const Run& run = runs[k];
    if (run.begin == run.end) continue;
    statuses[k] = Status::system(ECANCELED, "not read");
    ranges.push_back({&run.reader->file(), run.begin, run.end});
    run_of.push_back(k);
  }
  const auto take = [&](std::size_t k, Bytes bytes) {
    statuses[run_of[k]] = decode(runs[run_of[k]], bytes, sink);
    return wanted();
  };
  if (!ranges.empty()) {
    ranges.front().file->fetcher()->fetch(ranges, take);
  }
  for (std::size_t k = 0; k < runs.size() && wanted(); ++k) {
    if (runs[k].begin != runs[k].end) continue;
    statuses[k] = runs[k].reader->read(runs[k].requests, sink);
  }
  const auto failed =
      std::ranges::find_if(statuses, [](const Status& s) { return !s.ok(); });
  return failed == statuses.end() ? Status() : *failed;
}

}  // namespace gristmill
