// The time that units usually take, and a limit for slow ones.
//
// Thread safety: external synchronization (the scheduler's mutex).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace gristmill {

// A unit is slow when it has taken much longer than those before it, and at
// least `least_s`.  It is reported once.
class Pace {
 public:
  // A negative `least_s`: no unit is slow.
  explicit Pace(double least_s) : least_s_(least_s) {}

  // A unit took so long.
  void add(double seconds) noexcept {
    usual_s_ =
        count_ == 0 ? seconds : usual_s_ + (seconds - usual_s_) / kRemembered;
    if (count_ < kKnown) ++count_;
  }

  // Time after which a unit is slow, in s; empty if it is not to be reported.
  [[nodiscard]] std::optional<double> limit_s(std::uint64_t id) const noexcept {
    if (least_s_ < 0 || count_ < kKnown || id == reported_) return std::nullopt;
    return std::max(least_s_, kMuch * usual_s_);
  }

  // The unit was reported.
  void reported(std::uint64_t id) noexcept { reported_ = id; }

  [[nodiscard]] double usual_s() const noexcept { return usual_s_; }

 private:
  static constexpr double kMuch = 20;
  static constexpr double kRemembered = 8;  // units, about
  static constexpr int kKnown = 3;          // units that say what is usual

  const double least_s_;
  double usual_s_ = 0;
  int count_ = 0;
  std::uint64_t reported_ = 0;
};

}  // namespace gristmill
