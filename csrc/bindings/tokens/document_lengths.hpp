// Views arrays of lengths of documents.
#pragma once

#include "bindings/bind.hpp"
#include "core/tokens/document_lengths.hpp"

namespace gristmill::bind {

// Returns a view of an array, which must outlive it.  Throws TypeError or
// ValueError unless it is a contiguous array of int32 or int64 with one axis.
DocumentLengths view_of_lengths(const py::array& lengths);

}  // namespace gristmill::bind
