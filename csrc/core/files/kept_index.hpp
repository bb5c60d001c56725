// Makes the index of a data file once for all processes of a machine.
//
// Thread safety: a pure function.  Processes may call it for one file at the
// same time.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/index_file.hpp"

namespace gristmill {

// Returns the index at the first of the paths `kept` that has the one of
// `origin`, else what `make` returns, saved to the first that can be written.
//
// Waits at most `longest` for another that makes one: about as long as that
// takes, because names of one file have one lock.
Result<IndexFile> kept_index(const File& file, const IndexFile::Origin& origin,
                             std::span<const std::string> kept,
                             std::chrono::milliseconds longest,
                             const std::function<Result<IndexFile>()>& make);

}  // namespace gristmill
