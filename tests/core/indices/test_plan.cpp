// Compares the plan with a model that resolves one position at a time.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "core/check.hpp"
#include "core/indices/permute.hpp"
#include "core/indices/plan.hpp"

using gristmill::Code;
using gristmill::KeyPlan;
using gristmill::Permutation;

namespace {

__extension__ using Wide = __int128;

constexpr std::int64_t kFar = std::int64_t{1} << 62;

Wide floor_div(Wide left, Wide right) {
  return left / right - (left % right < 0 ? 1 : 0);
}

// Applies Grain's rules literally to a position.
std::int64_t model(const KeyPlan& plan, Wide position) {
  const auto ops = plan.ops();
  for (auto i = ops.size() - 1; i > 0; --i) {
    const auto& op = ops[i];
    const Wide below = ops[i - 1].length;
    const auto epoch = floor_div(position, op.length);
    auto offset = static_cast<std::int64_t>(position - epoch * op.length);
    switch (op.kind) {
      case KeyPlan::Kind::kShuffle: {
        const auto seed = op.seed + static_cast<std::uint32_t>(epoch);
        Permutation(op.length - 1, seed).apply({&offset, 1});
        position = offset + epoch * below;
        break;
      }
      case KeyPlan::Kind::kRepeat:
        if (!op.reseed) position -= floor_div(position, below) * below;
        break;
      default:
        position = op.first + Wide{offset} * op.step + epoch * below;
    }
  }
  const auto& range = ops[0];
  if (range.kind == KeyPlan::Kind::kPositions) {
    return static_cast<std::int64_t>(position);
  }
  const auto epoch = floor_div(position, range.length);
  const auto offset = position - epoch * range.length;
  return static_cast<std::int64_t>(range.first + offset * range.step);
}

KeyPlan range(std::int64_t count) {
  return KeyPlan::range(count, 0, 1).value();
}

KeyPlan positions(std::int64_t count) {
  return KeyPlan::positions(count).value();
}

std::vector<KeyPlan> plans() {
  return {
      range(7),
      KeyPlan::range(7, 100, -3).value(),
      range(3000).shuffle(5).value(),
      range(10).shard(3, 7).value().shuffle(1).value(),
      range(10).shuffle(4294967295).value().repeat(3, true).value(),
      range(10).shuffle(9).value().repeat(3, false).value(),
      range(10).shuffle(2).value().repeat(std::nullopt, true).value(),
      range(11).shuffle(2).value().slice(9, -2, 4).value(),
      range(5).shuffle(2).value().repeat(4, true).value().shuffle(8).value(),
      range(5)
          .shuffle(2)
          .value()
          .repeat(std::nullopt, true)
          .value()
          .slice(3, 2, 9)
          .value()
          .shuffle(6)
          .value()
          .repeat(std::nullopt, true)
          .value(),
      range(65537).shuffle(1).value().slice(65536, 1, 1).value(),
      positions(7),
      positions(10).shuffle(2).value().repeat(3, true).value(),
      positions(10).shuffle(2).value().repeat(3, false).value(),
      positions(11).shard(2, 10).value().slice(6, -2, 3).value(),
  };
}

void test_fill_equals_model() {
  const std::int64_t steps[] = {1, -7, 0, 4099};
  for (const auto& plan : plans()) {
    // A slice spreads the positions of the view below.
    const bool folds = plan.ops()[0].kind == KeyPlan::Kind::kRange;
    const auto far = folds ? kFar : kFar / 16;
    const std::int64_t firsts[] = {0, -25, 12345, far, -far};
    for (const auto first : firsts) {
      for (const auto step : steps) {
        // Once more than a block of fill().  Small shuffles are slow.
        std::vector<std::int64_t> keys(first == 0 && step == 1 ? 1100 : 170);
        CHECK(plan.fill(first, step, keys).ok());
        for (std::size_t k = 0; k < keys.size(); k += 83) {
          const auto position = first + static_cast<std::int64_t>(k) * step;
          CHECK_EQ(keys[k], model(plan, position));
          CHECK_EQ(plan.key(position).value(), keys[k]);
        }
      }
    }
  }
}

// Positions in runs within an epoch, far apart, and random ones.
void test_keys_equal_model() {
  for (const auto& plan : plans()) {
    std::vector<std::int64_t> positions;
    for (const std::int64_t base : {std::int64_t{0}, -kFar / 16, kFar / 16}) {
      for (std::int64_t k = 0; k < 25; ++k) {
        positions.push_back(base + k);
        positions.push_back(base - k * k * 31);
      }
    }
    for (std::int64_t k = 0; k < 1100; ++k) positions.push_back(7 + k % 3);
    auto keys = positions;
    CHECK(plan.keys(keys).ok());
    for (std::size_t k = 0; k < keys.size(); k += k < 150 ? 1 : 97) {
      CHECK_EQ(keys[k], model(plan, positions[k]));
    }
  }
}

void test_keys_differ_at_ends_of_int64() {
  const auto smallest = std::numeric_limits<std::int64_t>::min();
  const auto largest = std::numeric_limits<std::int64_t>::max();
  for (const auto length : {std::int64_t{5}, kFar, largest}) {
    std::vector<std::int64_t> keys{largest, smallest, 0, -1, smallest, largest};
    const auto positions = keys;
    CHECK(range(length).keys(keys).ok());
    for (std::size_t k = 0; k < keys.size(); ++k) {
      CHECK_EQ(keys[k], model(range(length), positions[k]));
    }
    keys = positions;
    CHECK(KeyPlan::positions(length).value().keys(keys).ok());
    CHECK(keys == positions);
  }
}

void test_position_below_overflow_is_error() {
  const auto largest = std::numeric_limits<std::int64_t>::max();
  const auto reversed = positions(10).slice(9, -1, 10).value();
  const auto begin =
      largest - largest % 10;  // The last epoch has only 8 positions.
  CHECK_EQ(reversed.key(begin + 2).value(), begin + 7);
  CHECK(reversed.key(begin + 1).status().code() == Code::kOverflow);
  std::vector<std::int64_t> keys{begin + 2, begin + 1, begin + 3};
  CHECK(reversed.keys(keys).code() == Code::kOverflow);
  const auto apart = positions(10).slice(0, 1, 1).value();
  CHECK_EQ(apart.key(largest / 10).value(), begin);
  CHECK(apart.key(kFar).status().code() == Code::kOverflow);
  CHECK(apart.key(-kFar).status().code() == Code::kOverflow);
}

void test_fill_reaches_ends_of_int64() {
  const auto smallest = std::numeric_limits<std::int64_t>::min();
  const auto largest = std::numeric_limits<std::int64_t>::max();
  for (const auto& plan : plans()) {
    if (plan.ops()[0].kind == KeyPlan::Kind::kPositions) continue;
    for (const auto position : {smallest, largest}) {
      CHECK_EQ(plan.key(position).value(), model(plan, position));
    }
    std::vector<std::int64_t> keys(2);
    CHECK(plan.fill(0, smallest, keys).ok());
    CHECK_EQ(keys[1], model(plan, smallest));
    CHECK(plan.fill(largest, 1, keys).code() == Code::kOverflow);
  }
}

void test_empty_plan_key_is_error() {
  CHECK(range(0).key(0).status().code() == Code::kDivideByZero);
  CHECK(range(5).shard(2, 2).value().key(0).status().code() ==
        Code::kDivideByZero);
  CHECK_EQ(range(0).repeat(std::nullopt, true).value().length(), 0);
  CHECK(range(0).fill(0, 1, {}).ok());
  CHECK(range(0).keys({}).ok());
  std::vector<std::int64_t> one{0};
  CHECK(positions(0).keys(one).code() == Code::kDivideByZero);
}

void test_invalid_arguments_are_errors() {
  const auto bad = Code::kInvalidArgument;
  CHECK(KeyPlan::range(-1, 0, 1).status().code() == bad);
  CHECK(KeyPlan::positions(-1).status().code() == bad);
  CHECK(KeyPlan::range(3, kFar, kFar).status().code() == Code::kOverflow);
  CHECK(range(5).shard(3, 6).status().code() == bad);
  CHECK(range(5).shard(4, 3).status().code() == bad);
  CHECK(range(5).shuffle(-1).status().code() == bad);
  CHECK(range(5).shuffle(std::int64_t{1} << 32).status().code() == bad);
  CHECK(range(5).repeat(0, true).status().code() == bad);
  CHECK(range(5).repeat(kFar, true).status().code() == Code::kOverflow);
  const auto endless = range(5).repeat(std::nullopt, true).value();
  CHECK(endless.repeat(2, true).status().code() == bad);
  CHECK(endless.repeat(std::nullopt, true).status().code() == bad);
  CHECK(range(5).slice(0, 1, 6).status().code() == bad);
  CHECK(range(5).slice(1, -1, 3).status().code() == bad);
}

void test_epoch_beyond_128_bits_is_error() {
  auto plan = range(3);
  for (int i = 0; i < 4; ++i) {
    plan = plan.repeat(std::nullopt, true).value().slice(0, 1, 1).value();
  }
  CHECK(plan.key(kFar).status().code() == Code::kOverflow);
  CHECK_EQ(plan.key(0).value(), 0);
}

// For UBSan: the product overflows, but the sum does not.
void test_range_can_span_int64() {
  constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kStep = (std::int64_t{1} << 62) + 7;
  const auto plan = KeyPlan::range(4, kLow, kStep).value();
  CHECK_EQ(plan.key(2).value(), 14);
  CHECK_EQ(plan.key(3).value(), kStep + 14);
}

}  // namespace

int main() {
  test_fill_equals_model();
  test_keys_equal_model();
  test_keys_differ_at_ends_of_int64();
  test_position_below_overflow_is_error();
  test_fill_reaches_ends_of_int64();
  test_empty_plan_key_is_error();
  test_invalid_arguments_are_errors();
  test_epoch_beyond_128_bits_is_error();
  test_range_can_span_int64();
}
