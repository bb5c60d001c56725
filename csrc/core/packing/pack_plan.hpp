// A PackPlan maps each row of a packed dataset to spans of documents.
//
// The documents of each epoch are divided into windows, and each window is
// packed on its own when one of its rows is needed.  The rows of a window
// depend only on the lengths, the options and the number of the window.  The
// plan stores the number of rows of each window up to the last one that was
// needed, and nothing for each document.
//
// Thread safety: any thread may call any function.
//
// Fork: a child continues to use the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/base/mutex.hpp"
#include "core/base/status.hpp"
#include "core/packing/document_windows.hpp"
#include "core/packing/pack_options.hpp"
#include "core/packing/packed_window.hpp"
#include "core/tokens/document_lengths.hpp"

namespace gristmill {

class PackPlan {
 public:
  using Options = PackOptions;

  // The spans of some rows: row i has the spans from offsets[i] to
  // offsets[i + 1].  Each is tokens [begin, end) of a document.
  struct Rows {
    std::vector<std::int64_t> offsets{0};
    std::vector<std::int64_t> documents;
    std::vector<std::int64_t> begins;
    std::vector<std::int64_t> ends;
  };

  // Reads all lengths once, which must not change later.  Ignores a file of
  // counts that cannot be used.
  // Fails with kInvalidArgument if an option or a length is out of range.
  static Result<std::unique_ptr<PackPlan>> of(DocumentLengths lengths,
                                              const Options& options);

  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const LengthTotals& totals() const noexcept { return totals_; }

  // Returns the first row of an epoch, counted through all epochs, or the
  // number of rows if epoch is the number of epochs.  Counts the rows of all
  // earlier windows in several threads, and keeps them in the file if there is
  // one and it can be written.
  // Fails with kOutOfRange if the epoch does not exist.
  [[nodiscard]] Result<std::int64_t> first_row(std::int64_t epoch) const
      EXCLUDES(mutex_);

  // Returns the spans of rows.  Rows of the same window should be adjacent.
  // Fails with kOutOfRange if a row does not exist, and with kInvalidArgument
  // if a window does not have the rows that were counted.
  [[nodiscard]] Result<Rows> rows(std::span<const std::int64_t> keys) const
      EXCLUDES(mutex_);

  // Replaces each row by its epoch.  Fails like rows().
  Status epochs(std::span<std::int64_t> keys) const EXCLUDES(mutex_);

  // Returns the costs of rows, which are the sums over their spans.
  // Fails like rows(), and with kInvalidArgument without span_costs.
  [[nodiscard]] Result<std::vector<double>> costs(
      std::span<const std::int64_t> keys) const EXCLUDES(mutex_);

  // Returns the ends of the windows that have been counted: the number of rows
  // up to the end of each.
  [[nodiscard]] std::vector<std::int64_t> window_ends() const EXCLUDES(mutex_);

  // Adds the result of window_ends() of an equal plan.
  // Fails with kInvalidArgument if it cannot be of an equal plan.
  Status add_window_ends(std::span<const std::int64_t> ends) EXCLUDES(mutex_);

 private:
  using Window = std::shared_ptr<const PackedWindow>;

  // A window and its rows [first_row, end_row), counted through all windows.
  struct Place {
    std::int64_t window = 0;
    std::int64_t first_row = 0;
    std::int64_t end_row = 0;
  };

  PackPlan(DocumentLengths lengths, const Options& options,
           const LengthTotals& totals);

  // Returns the place of the window that contains a row.
  [[nodiscard]] Result<Place> locate(std::int64_t row) const EXCLUDES(mutex_);
  // Counts the rows of at least the first `windows` windows.
  Status count_windows(std::int64_t windows) const EXCLUDES(mutex_);
  // Returns a window, from the cache if it is there.
  [[nodiscard]] Result<Window> window_at(std::int64_t number) const
      EXCLUDES(mutex_);
  // Packs a window whose first row is known.
  [[nodiscard]] Result<Window> pack(std::int64_t number,
                                    std::int64_t first_row) const;
  // Returns the costs of all rows of a window.
  [[nodiscard]] std::vector<double> costs_of(const PackedWindow& window) const;
  // Balances the cheapest rows, at least a group.  Most of the rows that are
  // not full are among them.
  void balance_cheapest(const DocumentWindows::Window& window,
                        PackedWindow& packed) const;
  // Appends the numbers of rows of consecutive windows.
  Status add_counts(std::int64_t first_window,
                    std::span<const std::int64_t> counts) const
      EXCLUDES(mutex_);
  void append_rows(const PackedWindow& window, const Place& place,
                   std::span<const std::int64_t> keys, Rows& rows) const;
  // Calls visit(window, place, keys) for each run of keys in one window.
  template <class Visit>
  Status for_each_window(std::span<const std::int64_t> keys, Visit visit) const;
  // Returns the order of the rows of a window.
  [[nodiscard]] std::vector<std::uint32_t> order_of(
      const PackedWindow& packed, const DocumentWindows::Window& window,
      std::int64_t first_row) const;

  // Guards the mutable members of all plans.  Held for a short time only.
  static Mutex mutex_;
  static const bool kHeldAtFork;

  // The most recently used windows that are kept.
  static constexpr std::size_t kMaxCachedWindows = 4;

  const DocumentLengths lengths_;
  const Options options_;
  const PackRule rule_;
  const LengthTotals totals_;
  const DocumentWindows windows_;
  const std::int64_t num_windows_;  // The sum over all epochs.

  // The number of rows up to the end of each window, for the first windows.
  mutable std::vector<std::int64_t> window_ends_ GUARDED_BY(mutex_);
  // The most recently used window first.
  mutable std::list<std::pair<std::int64_t, Window>> cached_windows_
      GUARDED_BY(mutex_);
};

}  // namespace gristmill
