// Objects of Python that threads share which may have the GIL or not.
#pragma once

#include <memory>

#include "bindings/bind.hpp"

namespace gristmill::bind {

// Takes over a reference; one that is left when the interpreter ends is never
// given back.  REQUIRES: the GIL is held.
std::shared_ptr<const void> share(PyObject* stolen);

inline PyObject* object_of(const std::shared_ptr<const void>& shared) {
  return static_cast<PyObject*>(const_cast<void*>(shared.get()));
}

// Takes what was raised.  REQUIRES: the GIL is held; something was raised.
Status take_raised();

}  // namespace gristmill::bind
