// Verify says which checksums of a file are compared when it is read.
#pragma once

namespace gristmill {

// Those of data and headers, of headers, or none.  The length in a TFRecord's
// header is compared with the index in any case.
enum class Verify { kAll, kHeaders, kNone };

}  // namespace gristmill
