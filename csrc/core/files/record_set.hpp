// A RecordSet combines several readers into one, such as the shards of a
// dataset.
//
// Each part is a range of the records of a reader.  The sizes of all parts are
// fixed at construction, but a part needs its reader only when it is read: see
// closed_parts().
//
// Thread safety: any thread may call any method.
//
// Fork: a child may continue to read, even if other threads were reading during
// the fork.
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
    std::uint64_t first = 0;  // Record number in the reader of the part.
    std::uint64_t count = 0;
  };

  // Errors call the set `name`.
  RecordSet(std::string name, std::span<const Range> ranges);

  // Returns the parts that `requests` need and that do not have a reader yet.
  // `requests` must be in the order of `record`.
  [[nodiscard]] std::vector<std::size_t> closed_parts(
      std::span<const Request> requests) const;

  // Sets the reader of a part, unless the part has one.  The reader must have
  // all records of the part's range.
  Status open_part(std::size_t part,
                   std::shared_ptr<const RecordReader> reader);

  // Drops all readers.  Reads in progress keep theirs.
  void close_parts();

  [[nodiscard]] std::size_t num_parts() const { return ranges_.size(); }

  [[nodiscard]] const std::string& path() const override { return name_; }
  [[nodiscard]] std::uint64_t size() const override { return begins_.back(); }

  // Returns false if knows_sizes() of any open reader is false.
  [[nodiscard]] bool knows_sizes() const override;

  // The methods below REQUIRE that the parts that they use have readers.
  Status sizes(std::span<const Request> requests,
               std::span<std::int64_t> sizes) const override;
  [[nodiscard]] bool shares_work(std::int64_t left,
                                 std::int64_t right) const override;

  // Returns the maximum over the open readers.
  [[nodiscard]] std::size_t parallel() const override;

  // Returns true if there are open readers and all of them fetch.
  [[nodiscard]] bool fetches() const override;
  Status add_runs(std::span<const Request> requests,
                  std::vector<Run>& runs) const override;
  Status read(std::span<const Request> requests, Sink& sink) const override;

  // Returns true if there are open readers and all of them have views.
  [[nodiscard]] bool has_views() const override;
  Status views(std::span<const Request> requests,
               std::span<View> views) const override;
  [[nodiscard]] Result<std::shared_ptr<const RecordReader>> slices(
      std::span<const Slice> slices, std::uint64_t item_bytes) const override;

  // Returns the reader of a part, or null if the part is closed.
  [[nodiscard]] std::shared_ptr<const RecordReader> reader(
      std::size_t part) const;

 private:
  struct Location {
    std::size_t part = 0;
    std::int64_t record = 0;  // Record number in the reader of the part.
  };

  [[nodiscard]] Location locate(std::int64_t record) const;
  template <class Predicate>
  [[nodiscard]] bool all_readers(Predicate&& predicate) const;
  template <class Item, class Each>
  Status each_part(std::span<const Item> items, Each&& each) const;

  const std::string name_;
  const std::vector<Range> ranges_;
  // The first record of each part, and the total number of records.
  std::vector<std::uint64_t> begins_;  // unguarded: fixed from the start

  // Shared by all sets, so that the forking thread can hold it.
  static Mutex readers_mutex_;
  static const bool kHeldAtFork;
  std::vector<std::shared_ptr<const RecordReader>> readers_
      GUARDED_BY(readers_mutex_);
};

}  // namespace gristmill
