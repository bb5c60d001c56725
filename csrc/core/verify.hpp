// Verify says which checksums of a file are compared when it is read.
#pragma once

namespace gristmill {

// Those of data and headers, of headers, or none.
enum class Verify { kAll, kHeaders, kNone };

}  // namespace gristmill
