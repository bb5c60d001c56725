// A PythonFetcher reads many ranges of PythonFiles at once: those that are kept
// on this machine without Python, and the others by fetch() of their objects.
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
             const Arrive& arrive) const override;
};

}  // namespace gristmill::bind
