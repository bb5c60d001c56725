// Python objects that threads share, with the GIL or without.
#pragma once

#include <memory>

#include "bindings/bind.hpp"

namespace gristmill::bind {

// Takes ownership of a reference.  References that remain when the interpreter
// shuts down are leaked.  REQUIRES: the GIL is held.
std::shared_ptr<const void> share(PyObject* stolen);

inline PyObject* object_of(const std::shared_ptr<const void>& shared) {
  return static_cast<PyObject*>(const_cast<void*>(shared.get()));
}

// Returns the current Python exception as a status, and clears it.
// REQUIRES: the GIL is held; an exception is set.
Status take_raised();

}  // namespace gristmill::bind
