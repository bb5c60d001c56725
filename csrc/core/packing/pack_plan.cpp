#include "core/packing/pack_plan.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "core/base/at_fork.hpp"
#include "core/base/pool.hpp"
#include "core/packing/random_order.hpp"
#include "core/packing/row_balance.hpp"
#include "core/packing/row_order.hpp"
#include "core/packing/window_ends_file.hpp"

namespace gristmill {
namespace {

constexpr unsigned kMaxCountingThreads = 16;
// The room of a row that is not full is spread over at least this many rows.
constexpr std::size_t kMinBalancedRows = 64;

Status no_such_row(std::int64_t row, std::int64_t rows) {
  return {Code::kOutOfRange, "row must be in [0, ", rows, "), got ", row};
}

}  // namespace

Mutex PackPlan::mutex_;
const bool PackPlan::kHeldAtFork =
    at_fork(ForkStep::kPackPlans, held_at_fork<mutex_>());

Result<std::unique_ptr<PackPlan>> PackPlan::of(DocumentLengths lengths,
                                               const Options& options) {
  TRY(check_pack_options(options));
  const LengthTotals totals =
      TRY(total_features(lengths, options.capacity, options.extras));
  if (options.long_documents == LongDocuments::kCut) {
    TRY(check_extras_fit(options.extras));
  }
  const DocumentWindows windows(lengths.size(), options.window, options.seed);
  if (windows.per_epoch() > 0 &&
      options.epochs >
          std::numeric_limits<std::int64_t>::max() / windows.per_epoch()) {
    return Status(
        Code::kOverflow, "num_epochs must be at most ",
        std::numeric_limits<std::int64_t>::max() / windows.per_epoch(),
        ", got ", options.epochs);
  }
  std::unique_ptr<PackPlan> plan(new PackPlan(lengths, options, totals));
  if (!options.counts_path.empty()) {
    auto ends =
        load_window_ends(options.counts_path, pack_counts_key(options, totals));
    if (ends.ok()) {
      // The file may be of a plan with more epochs.
      const auto size = static_cast<std::uint64_t>(plan->num_windows_);
      if (ends.value().size() > size) ends.value().resize(size);
      TRY(plan->add_window_ends(ends.value()));
    }
  }
  return plan;
}

PackPlan::PackPlan(DocumentLengths lengths, const Options& options,
                   const LengthTotals& totals)
    : lengths_(lengths),
      options_(options),
      rule_{.capacity = static_cast<std::uint32_t>(options.capacity),
            .method = options.method,
            .long_documents = options.long_documents,
            .extras = options_.extras},
      totals_(totals),
      windows_(lengths.size(), options.window, options.seed),
      num_windows_(windows_.per_epoch() * options.epochs) {}

Result<std::int64_t> PackPlan::first_row(std::int64_t epoch) const {
  if (epoch < 0 || epoch > options_.epochs) {
    return Status(Code::kOutOfRange, "epoch must be in [0, ", options_.epochs,
                  "], got ", epoch);
  }
  const auto windows = windows_.per_epoch() * epoch;
  if (windows == 0) return std::int64_t{0};
  TRY(count_windows(windows));
  const MutexLock lock(mutex_);
  return window_ends_[static_cast<std::size_t>(windows) - 1];
}

template <class Visit>
Status PackPlan::for_each_window(std::span<const std::int64_t> keys,
                                 Visit visit) const {
  while (!keys.empty()) {
    const Place place = TRY(locate(keys.front()));
    std::size_t count = 1;
    while (count < keys.size() && keys[count] >= place.first_row &&
           keys[count] < place.end_row) {
      ++count;
    }
    const Window window = TRY(window_at(place.window));
    const auto num_rows = static_cast<std::int64_t>(window->num_rows());
    if (num_rows != place.end_row - place.first_row) {
      return {Code::kInvalidArgument,
              "window ",
              place.window,
              " has ",
              num_rows,
              " rows, but ",
              place.end_row - place.first_row,
              " were counted: the lengths changed after the plan was made"};
    }
    visit(*window, place, keys.first(count));
    keys = keys.subspan(count);
  }
  return {};
}

Result<PackPlan::Rows> PackPlan::rows(
    std::span<const std::int64_t> keys) const {
  Rows rows;
  rows.offsets.reserve(keys.size() + 1);
  TRY(for_each_window(keys, [&](const PackedWindow& window, const Place& place,
                                std::span<const std::int64_t> run) {
    append_rows(window, place, run, rows);
  }));
  return rows;
}

Result<std::vector<double>> PackPlan::costs(
    std::span<const std::int64_t> keys) const {
  if (options_.span_costs.empty()) {
    return Status(Code::kInvalidArgument,
                  "rows have costs only in a plan with span_costs");
  }
  std::vector<double> costs;
  costs.reserve(keys.size());
  TRY(for_each_window(keys, [&](const PackedWindow& window, const Place& place,
                                std::span<const std::int64_t> run) {
    for (const auto key : run) {
      const auto row = static_cast<std::size_t>(key - place.first_row);
      costs.push_back(cost_of_row(window.row(row), options_.span_costs));
    }
  }));
  return costs;
}

std::vector<double> PackPlan::costs_of(const PackedWindow& window) const {
  std::vector<double> costs;
  costs.reserve(window.num_rows());
  for (std::size_t row = 0; row < window.num_rows(); ++row) {
    costs.push_back(cost_of_row(window.row(row), options_.span_costs));
  }
  return costs;
}

void PackPlan::balance_cheapest(const DocumentWindows::Window& window,
                                PackedWindow& packed) const {
  const auto sorted = sort_by_cost(costs_of(packed));
  const auto group_rows = static_cast<std::size_t>(options_.group_rows);
  const auto size =
      std::min(sorted.size(), std::max(kMinBalancedRows, group_rows));
  const auto numbers = std::span(sorted).last(size);
  std::vector<std::vector<PackedWindow::Span>> rows;
  for (const auto number : numbers) {
    const auto row = packed.row(number);
    rows.emplace_back(row.begin(), row.end());
  }
  balance_rows(rule_.capacity, options_.span_costs, rows,
               extras_of_rows(rule_.extras, windows_, window, rows));
  packed.replace(numbers, rows);
}

void PackPlan::append_rows(const PackedWindow& window, const Place& place,
                           std::span<const std::int64_t> keys,
                           Rows& rows) const {
  const auto row_at = [&](std::int64_t key) {
    return window.row(static_cast<std::size_t>(key - place.first_row));
  };
  const auto first = rows.documents.size();
  auto end = first;
  for (const auto key : keys) {
    end += row_at(key).size();
    rows.offsets.push_back(static_cast<std::int64_t>(end));
  }
  rows.documents.resize(end);
  rows.begins.resize(end);
  rows.ends.resize(end);
  auto i = first;
  for (const auto key : keys) {
    for (const auto& span : row_at(key)) {
      rows.documents[i] = span.offset;
      rows.begins[i] = span.begin;
      rows.ends[i] = span.begin + span.length;
      ++i;
    }
  }
  windows_.resolve(windows_.at(place.window),
                   std::span(rows.documents).subspan(first));
}

Status PackPlan::epochs(std::span<std::int64_t> keys) const {
  Place place;
  for (auto& key : keys) {
    if (key < place.first_row || key >= place.end_row) {
      place = TRY(locate(key));
    }
    key = windows_.at(place.window).epoch;
  }
  return {};
}

std::vector<std::int64_t> PackPlan::window_ends() const {
  const MutexLock lock(mutex_);
  return window_ends_;
}

Status PackPlan::add_window_ends(std::span<const std::int64_t> ends) {
  if (ends.empty()) return {};
  if (static_cast<std::int64_t>(ends.size()) > num_windows_ || ends[0] < 0 ||
      !std::ranges::is_sorted(ends)) {
    return {Code::kInvalidArgument, "window_ends are not of this plan"};
  }
  const MutexLock lock(mutex_);
  if (window_ends_.size() < ends.size()) {
    window_ends_.assign(ends.begin(), ends.end());
  }
  return {};
}

Result<PackPlan::Place> PackPlan::locate(std::int64_t row) const {
  if (row < 0) return no_such_row(row, TRY(first_row(options_.epochs)));
  for (;;) {
    std::int64_t num_counted = 0;
    std::int64_t num_rows = 0;
    {
      const MutexLock lock(mutex_);
      num_counted = static_cast<std::int64_t>(window_ends_.size());
      num_rows = window_ends_.empty() ? 0 : window_ends_.back();
      if (row < num_rows) {
        const auto found = std::ranges::upper_bound(window_ends_, row);
        return Place{
            .window = found - window_ends_.begin(),
            .first_row = found == window_ends_.begin() ? 0 : *(found - 1),
            .end_row = *found};
      }
    }
    if (num_counted == num_windows_) return no_such_row(row, num_rows);
    // An estimate of the windows up to the row.
    const auto dropped = options_.long_documents == LongDocuments::kDrop
                             ? totals_.long_tokens
                             : 0;
    const auto rows_per_window =
        (totals_.tokens - dropped) / windows_.per_epoch() / options_.capacity +
        1;
    const auto missing = (row - num_rows) / rows_per_window;
    if (missing > 0) {
      TRY(count_windows(std::min(num_windows_ - num_counted, missing) +
                        num_counted));
    } else {
      // The row is probably in the next window, so it must be packed anyway.
      TRY(window_at(num_counted));
    }
  }
}

Status PackPlan::count_windows(std::int64_t windows) const {
  std::int64_t first = 0;
  {
    const MutexLock lock(mutex_);
    first = static_cast<std::int64_t>(window_ends_.size());
  }
  if (first >= windows) return {};
  std::vector<std::int64_t> counts(static_cast<std::size_t>(windows - first));
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&]() -> Status {
    while (!failed) {
      const auto i = next.fetch_add(1);
      if (i >= counts.size()) break;
      auto count = PackedWindow::count_rows(
          rule_, lengths_, windows_,
          windows_.at(first + static_cast<std::int64_t>(i)));
      if (!count.ok()) {
        failed = true;
        return count.status();
      }
      counts[i] = count.value();
    }
    return {};
  };
  const auto threads = std::min<std::size_t>(
      std::clamp(std::thread::hardware_concurrency(), 1U, kMaxCountingThreads),
      counts.size());
  std::vector<Status> statuses(threads);
  {
    Pool pool(threads);
    TaskGroup group;
    for (std::size_t i = 1; i < threads; ++i) {
      pool.run(group, [&, i] { statuses[i] = work(); });
    }
    statuses[0] = work();
    static_cast<void>(group.wait());
  }
  for (const Status& status : statuses) TRY(Status(status));
  TRY(add_counts(first, counts));
  if (!options_.counts_path.empty()) {
    // The file only saves time, so the plan works without it.
    static_cast<void>(save_window_ends(options_.counts_path,
                                       pack_counts_key(options_, totals_),
                                       window_ends()));
  }
  return {};
}

Status PackPlan::add_counts(std::int64_t first_window,
                            std::span<const std::int64_t> counts) const {
  const MutexLock lock(mutex_);
  // Another thread may have counted the same windows.
  const auto num_known =
      window_ends_.size() - static_cast<std::size_t>(first_window);
  for (const auto count : counts.subspan(std::min(num_known, counts.size()))) {
    auto end = window_ends_.empty() ? 0 : window_ends_.back();
    if (__builtin_add_overflow(end, count, &end)) {
      return {Code::kOverflow, "the number of rows must be less than 2**63"};
    }
    window_ends_.push_back(end);
  }
  return {};
}

Result<PackPlan::Window> PackPlan::window_at(std::int64_t number) const {
  std::int64_t first_row = 0;
  {
    const MutexLock lock(mutex_);
    if (number > 0) {
      first_row = window_ends_[static_cast<std::size_t>(number) - 1];
    }
    const auto found = std::ranges::find(
        cached_windows_, number, &std::pair<std::int64_t, Window>::first);
    if (found != cached_windows_.end()) {
      cached_windows_.splice(cached_windows_.begin(), cached_windows_, found);
      return found->second;
    }
  }
  const Window window = TRY(pack(number, first_row));
  const auto rows = static_cast<std::int64_t>(window->num_rows());
  TRY(add_counts(number, std::span(&rows, 1)));
  std::list<std::pair<std::int64_t, Window>>
      evicted;  // Freed without the lock.
  const MutexLock lock(mutex_);
  cached_windows_.emplace_front(number, window);
  if (cached_windows_.size() > kMaxCachedWindows) {
    evicted.splice(evicted.begin(), cached_windows_,
                   std::prev(cached_windows_.end()));
  }
  return window;
}

Result<PackPlan::Window> PackPlan::pack(std::int64_t number,
                                        std::int64_t first_row) const {
  const auto window = windows_.at(number);
  PackedWindow packed =
      TRY(PackedWindow::pack(rule_, lengths_, windows_, window));
  if (!options_.span_costs.empty()) balance_cheapest(window, packed);
  packed.reorder(order_of(packed, window, first_row));
  return std::make_shared<const PackedWindow>(std::move(packed));
}

std::vector<std::uint32_t> PackPlan::order_of(
    const PackedWindow& packed, const DocumentWindows::Window& window,
    std::int64_t first_row) const {
  const auto seed = windows_.row_seed(window);
  if (!options_.span_costs.empty()) {
    return group_rows_by_cost(costs_of(packed), first_row, options_.group_rows,
                              seed.value_or(0));
  }
  std::vector<std::uint32_t> order(packed.num_rows());
  std::iota(order.begin(), order.end(), 0);
  if (seed) {
    shuffle_items(std::span(order), *seed);
    return order;
  }
  std::ranges::sort(order, {}, [&](std::uint32_t row) {
    const auto& first = packed.row(row).front();
    return std::pair(first.offset, first.begin);
  });
  return order;
}

}  // namespace gristmill
