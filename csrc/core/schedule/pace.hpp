// The time that units usually take, and a limit for slow ones.
//
// Thread safety: external synchronization (the scheduler's mutex).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace gristmill {

// A unit is slow if it has taken much longer than the units before it, and at
// least `min_slow_s`.  Each slow unit is reported once.
class Pace {
 public:
  // If `min_slow_s` is negative, no unit is slow.
  explicit Pace(double min_slow_s) : min_slow_s_(min_slow_s) {}

  // Records the time that a unit took.
  void add(double unit_s) noexcept {
    usual_s_ =
        count_ == 0 ? unit_s : usual_s_ + (unit_s - usual_s_) / kAveragedUnits;
    if (count_ < kMinUnits) ++count_;
  }

  // Returns the time after which a unit is slow, in s; empty if the unit must
  // not be reported.
  [[nodiscard]] std::optional<double> limit_s(std::uint64_t id) const noexcept {
    if (min_slow_s_ < 0 || count_ < kMinUnits || id == last_reported_id_) {
      return std::nullopt;
    }
    return std::max(min_slow_s_, kSlowFactor * usual_s_);
  }

  // Records that the unit was reported.
  void mark_reported(std::uint64_t id) noexcept { last_reported_id_ = id; }

  [[nodiscard]] double usual_s() const noexcept { return usual_s_; }

 private:
  static constexpr double kSlowFactor = 20;
  static constexpr double kAveragedUnits = 8;  // units in the average, roughly
  static constexpr int kMinUnits = 3;          // units before limits apply

  const double min_slow_s_;
  double usual_s_ = 0;
  int count_ = 0;  // of add(), at most kMinUnits
  std::uint64_t last_reported_id_ = 0;
};

}  // namespace gristmill
