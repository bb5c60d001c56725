// A PythonFetcher reads many ranges of PythonFiles at once.  It reads cached
// ranges without Python, and calls fetch() of the Python objects for the
// others.
//
// Thread safety: const methods may overlap.
#pragma once

#include <span>

#include "core/files/file.hpp"

namespace gristmill::bind {

class PythonFetcher final : public File::Fetcher {
 public:
  // REQUIRES: the files are PythonFiles; the GIL is not held.
  void fetch(std::span<const File::Range> ranges,
             const OnArrival& on_arrival) const override;
};

}  // namespace gristmill::bind
