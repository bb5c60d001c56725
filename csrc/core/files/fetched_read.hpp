// Reads records of remote files.  All reads start at once, and records are
// decoded in the order of arrival.
//
// Thread safety: a pure function; this thread calls the Sink.
#pragma once

#include <functional>
#include <span>

#include "core/base/status.hpp"
#include "core/files/record_reader.hpp"

namespace gristmill {

// Like reader.read(), but continues after an error and returns the error of the
// first record that could not be read.  Stops when `should_continue` returns
// false; the status is then unspecified. REQUIRES: reader.fetches().
Status read_fetched(const RecordReader& reader,
                    std::span<const RecordReader::Request> requests,
                    RecordReader::Sink& sink,
                    const std::function<bool()>& should_continue);

}  // namespace gristmill
