// DocumentWindows divides the documents of each epoch into windows, which are
// packed separately.
//
// Each epoch e is a permutation of the documents with the seed (seed + e) mod
// 2**32, or their own order without a seed.  A window is a run of its
// positions.  All windows of a plan have the same size, or differ by one
// document.  Windows are numbered through all epochs.
//
// Thread safety: immutable, any thread may call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/tokens/document_lengths.hpp"

namespace gristmill {

class DocumentWindows {
 public:
  struct Window {
    std::int64_t number = 0;
    std::int64_t epoch = 0;
    std::int64_t first = 0;  // Position in the epoch.
    std::int64_t size = 0;   // Number of documents.
  };

  // REQUIRES: documents >= 0; max_window > 0.
  DocumentWindows(std::int64_t documents, std::int64_t max_window,
                  std::optional<std::uint32_t> seed);

  // Returns the number of windows of an epoch; 0 without documents.
  [[nodiscard]] std::int64_t per_epoch() const noexcept { return per_epoch_; }

  // REQUIRES: there are documents; number >= 0.
  [[nodiscard]] Window at(std::int64_t number) const noexcept;

  // Returns the seed of the order of rows of a window, or nothing if there is
  // no seed.
  [[nodiscard]] std::optional<std::uint64_t> row_seed(
      const Window& window) const noexcept;

  // Replaces each offset in the window by the document there.
  // REQUIRES: all offsets are in [0, window.size).
  void resolve(const Window& window,
               std::span<std::int64_t> offsets) const noexcept;

 private:
  std::int64_t documents_;
  std::int64_t per_epoch_;
  std::optional<std::uint32_t> seed_;
};

}  // namespace gristmill
