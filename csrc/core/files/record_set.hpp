// A RecordSet is several readers as one, such as the shards of a dataset.
//
// Each part is a range of a reader's records.  How many they are is said at the
// start, but a part needs its reader only when it is read: see closed_parts().
//
// Thread safety: any thread may call any method.
//
// Fork: a child may go on reading, whatever other threads were at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/mutex.hpp"
#include "core/base/status.hpp"
#include "core/files/record_reader.hpp"

namespace gristmill {

class RecordSet final : public RecordReader {
 public:
  struct Range {
    std::uint64_t first = 0;  // In the part's own reader.
    std::uint64_t count = 0;
  };

  // `name` is what errors call the set.
  RecordSet(std::string name, std::span<const Range> ranges);

  // Returns the parts that `requests` need and that have no reader yet.
  [[nodiscard]] std::vector<std::size_t> closed_parts(
      std::span<const Request> requests) const;

  // Gives a part its reader, unless it has one.  The reader must have all
  // records of the part's range.
  Status open_part(std::size_t part,
                   std::shared_ptr<const RecordReader> reader);

  // Lets go of all readers; reads under way keep theirs.
  void close_parts();

  [[nodiscard]] std::size_t num_parts() const { return ranges_.size(); }

  [[nodiscard]] const std::string& path() const override { return name_; }
  [[nodiscard]] std::uint64_t size() const override { return begins_.back(); }

  // True unless an open reader does not know them.
  [[nodiscard]] bool knows_sizes() const override;

  // The methods below REQUIRE that the parts they need have readers.
  Status sizes(std::span<const Request> requests,
               std::span<std::int64_t> sizes) const override;
  [[nodiscard]] bool shares_work(std::int64_t left,
                                 std::int64_t right) const override;

  // As many as the open reader that wants most.
  [[nodiscard]] std::size_t parallel() const override;

  // True if all open readers do.
  [[nodiscard]] bool fetches() const override;
  Status add_runs(std::span<const Request> requests,
                  std::vector<Run>& runs) const override;
  Status read(std::span<const Request> requests, Sink& sink) const override;

 private:
  struct Place {
    std::size_t part = 0;
    std::int64_t record = 0;  // In the part's reader.
  };

  [[nodiscard]] Place find(std::int64_t record) const;
  [[nodiscard]] std::shared_ptr<const RecordReader> reader(
      std::size_t part) const;
  template <class Each>
  Status each_part(std::span<const Request> requests, Each&& each) const;

  const std::string name_;
  const std::vector<Range> ranges_;
  // Of each part, and the end of all.
  std::vector<std::uint64_t> begins_;  // unguarded: fixed from the start

  static Mutex readers_mutex_;  // Of all sets.
  static const bool kHeldAtFork;
  std::vector<std::shared_ptr<const RecordReader>> readers_
      GUARDED_BY(readers_mutex_);
};

}  // namespace gristmill
