// Reads records of files that are far away: everything that they need is under
// way at once, and they are decoded as it comes.
//
// Thread safety: a pure function; the Sink is called by this thread.
#pragma once

#include <functional>
#include <span>

#include "core/base/status.hpp"
#include "core/files/record_reader.hpp"

namespace gristmill {

// As reader.read(), but goes on behind an error: it returns that of the first
// record that could not be read.  Gives up, with any status, once `wanted`
// returns false.
// REQUIRES: reader.fetches().
Status read_fetched(const RecordReader& reader,
                    std::span<const RecordReader::Request> requests,
                    RecordReader::Sink& sink,
                    const std::function<bool()>& wanted);

}  // namespace gristmill
