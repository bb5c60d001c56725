#include "core/tokens/blend.hpp"

#include <algorithm>
#include <numeric>

namespace gristmill {
namespace {

template <class Number, class Bytes>
auto numbers_in(Bytes bytes) {
  return std::span(reinterpret_cast<Number*>(bytes.data()),
                   bytes.size() / sizeof(Number));
}

// Counts the samples that were taken from each data set.
class BlendCounter {
 public:
  explicit BlendCounter(std::span<const double> weights)
      : weights_(weights), counts_(weights.size()) {}

  // Returns the first of some data sets whose share is furthest below its
  // weight before sample `key`.  Compares the same floating-point numbers as
  // Megatron.
  [[nodiscard]] std::uint16_t pick(std::size_t key,
                                   std::span<const std::uint16_t> parts) const {
    const double samples = std::max(static_cast<double>(key), 1.0);
    std::uint16_t best = parts.front();
    double best_error = weights_[best] * samples - counts_[best];
    for (const std::uint16_t part : parts.subspan(1)) {
      const double error = weights_[part] * samples - counts_[part];
      if (error > best_error) {
        best = part;
        best_error = error;
      }
    }
    return best;
  }

  // Takes a sample.  Returns its number.
  std::uint64_t take(std::uint16_t part) {
    return static_cast<std::uint64_t>(counts_[part]++);
  }

 private:
  const std::span<const double> weights_;
  std::vector<double> counts_;  // Whole numbers, exact up to 2**53.
};

std::vector<std::uint16_t> all_parts(std::size_t count) {
  std::vector<std::uint16_t> parts(count);
  std::iota(parts.begin(), parts.end(), std::uint16_t{0});
  return parts;
}

}  // namespace

Result<Blend> Blend::weighted(std::span<const double> weights, std::size_t size,
                              const ArrayFile::Place& place) {
  return load_or_build(weights.size(), size, place, [&](const auto& to) {
    const auto parts = all_parts(weights.size());
    const auto part_of = numbers_in<std::uint16_t>(to[0]);
    const auto number_of = numbers_in<std::uint64_t>(to[1]);
    BlendCounter counter(weights);
    for (std::size_t key = 0; key < size; ++key) {
      part_of[key] = counter.pick(key, parts);
      number_of[key] = counter.take(part_of[key]);
    }
    return Status();
  });
}

Result<Blend> Blend::exhaustive(std::span<const std::int64_t> sizes,
                                const ArrayFile::Place& place) {
  const auto size = static_cast<std::size_t>(
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  return load_or_build(sizes.size(), size, place, [&](const auto& to) {
    std::vector<double> weights(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      weights[i] = static_cast<double>(sizes[i]) / static_cast<double>(size);
    }
    auto parts = all_parts(sizes.size());
    const auto part_of = numbers_in<std::uint16_t>(to[0]);
    const auto number_of = numbers_in<std::uint64_t>(to[1]);
    BlendCounter counter(weights);
    for (std::size_t key = 0; key < size; ++key) {
      const std::uint16_t part = counter.pick(key, parts);
      part_of[key] = part;
      number_of[key] = counter.take(part);
      if (number_of[key] + 1 == static_cast<std::uint64_t>(sizes[part])) {
        std::erase(parts, part);
      }
    }
    return Status();
  });
}

Result<Blend> Blend::load_or_build(std::size_t num_parts, std::size_t size,
                                   const ArrayFile::Place& place,
                                   const ArrayFile::Build& build) {
  ArrayFile arrays =
      TRY(ArrayFile::load_or_build(place, {2 * size, 8 * size, 0, 0}, build));
  return Blend(std::move(arrays), num_parts);
}

Blend::Blend(ArrayFile arrays, std::size_t num_parts)
    : arrays_(std::move(arrays)),
      parts_(numbers_in<const std::uint16_t>(arrays_.array(0))),
      numbers_(numbers_in<const std::uint64_t>(arrays_.array(1))),
      counts_(num_parts) {
  for (const std::uint16_t part : parts_) {
    // A forged file may name a data set that does not exist.
    if (part < num_parts) ++counts_[part];
  }
}

}  // namespace gristmill
