// The time that units usually take, and a limit for slow ones.
//
// Thread safety: external synchronization (the scheduler's mutex).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace gristmill {

// A unit is slow if it has taken much longer than the units before it, and at
// least `least_s`.  Each slow unit is reported once.
class Pace {
 public:
  // If `least_s` is negative, no unit is slow.
  explicit Pace(double least_s) : least_s_(least_s) {}

  // Records the time that a unit took.
  void add(double seconds) noexcept {
    usual_s_ = count_ == 0 ? seconds
                           : usual_s_ + (seconds - usual_s_) / kAveragedUnits;
    if (count_ < kMinUnits) ++count_;
  }

  // Returns the time after which a unit is slow, in s; empty if the unit must
  // not be reported.
  [[nodiscard]] std::optional<double> limit_s(std::uint64_t id) const noexcept {
    if (least_s_ < 0 || count_ < kMinUnits || id == reported_) {
      return std::nullopt;
    }
    return std::max(least_s_, kSlowFactor * usual_s_);
  }

  // Records that the unit was reported.
  void reported(std::uint64_t id) noexcept { reported_ = id; }

  [[nodiscard]] double usual_s() const noexcept { return usual_s_; }

 private:
  static constexpr double kSlowFactor = 20;
  static constexpr double kAveragedUnits = 8;  // units in the average, roughly
  static constexpr int kMinUnits = 3;          // units before limits apply

  const double least_s_;
  double usual_s_ = 0;
  int count_ = 0;
  std::uint64_t reported_ = 0;
};

}  // namespace gristmill
