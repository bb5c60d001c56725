#include <cstdint>
#include <vector>

#include "core/check.hpp"
#include "core/tokens/blend.hpp"

namespace gristmill {
namespace {

const ArrayFile::Place kNowhere{1, {}, ""};

std::vector<std::int64_t> parts_of(const Blend& blend) {
  std::vector<std::int64_t> parts;
  std::vector<std::int64_t> next(blend.counts().size());
  for (std::size_t key = 0; key < blend.size(); ++key) {
    const auto [part, number] = blend.at(key);
    CHECK_EQ(number, next.at(static_cast<std::size_t>(part))++);
    parts.push_back(part);
  }
  CHECK(next == blend.counts());
  return parts;
}

void test_weights_are_shares() {
  const std::vector<double> weights{0.25, 0.75};
  const Blend blend = Blend::weighted(weights, 8, kNowhere).value();
  CHECK((parts_of(blend) == std::vector<std::int64_t>{1, 0, 1, 1, 0, 1, 1, 1}));
}

void test_all_samples_are_taken() {
  const std::vector<std::int64_t> sizes{1, 3};
  const Blend blend = Blend::exhaustive(sizes, kNowhere).value();
  CHECK((parts_of(blend) == std::vector<std::int64_t>{1, 0, 1, 1}));
}

}  // namespace
}  // namespace gristmill

int main() {
  gristmill::test_weights_are_shares();
  gristmill::test_all_samples_are_taken();
}
