// A Blend is the order in which Megatron's BlendedDataset takes samples from
// several data sets.
//
// The list is two arrays of an ArrayFile: for each sample, the data set as
// uint16, and the number of the sample in it as uint64.
//
// Thread safety: const methods may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.hpp"
#include "core/files/array_file.hpp"

namespace gristmill {

class Blend {
 public:
  static constexpr std::size_t kMaxParts = 32766;

  // Takes `size` samples.  Each comes from the data set whose share is furthest
  // below its weight.
  // REQUIRES: from 1 to kMaxParts weights, whose sum is 1.
  static Result<Blend> weighted(std::span<const double> weights,
                                std::size_t size,
                                const ArrayFile::Place& place);

  // Takes all samples of each data set, in proportion to their numbers.
  // REQUIRES: from 1 to kMaxParts sizes, each positive.
  static Result<Blend> exhaustive(std::span<const std::int64_t> sizes,
                                  const ArrayFile::Place& place);

  // Returns the number of samples.
  [[nodiscard]] std::size_t size() const { return parts_.size(); }

  // Returns the number of samples of each data set.
  [[nodiscard]] const std::vector<std::int64_t>& counts() const {
    return counts_;
  }

  struct Sample {
    std::int64_t part = 0;  // The data set.
    std::int64_t number = 0;
  };
  // REQUIRES: key < size().
  [[nodiscard]] Sample at(std::size_t key) const {
    return {parts_[key], static_cast<std::int64_t>(numbers_[key])};
  }

  // See ArrayFile.
  [[nodiscard]] bool has_file() const noexcept { return arrays_.has_file(); }
  [[nodiscard]] const std::string& path() const { return arrays_.path(); }

 private:
  static Result<Blend> load_or_build(std::size_t num_parts, std::size_t size,
                                     const ArrayFile::Place& place,
                                     const ArrayFile::Build& build);

  Blend(ArrayFile arrays, std::size_t num_parts);

  const ArrayFile arrays_;
  const std::span<const std::uint16_t> parts_;
  const std::span<const std::uint64_t> numbers_;
  std::vector<std::int64_t> counts_;
};

}  // namespace gristmill
