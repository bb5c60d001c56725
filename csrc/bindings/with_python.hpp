// How threads of the core call Python: with the GIL, and not once the
// interpreter ends.
//
// Thread safety: any thread may call any function.
#pragma once

#include <cxxabi.h>
#include <unistd.h>

#include "bindings/bind.hpp"

namespace gristmill::bind {

// Arranges that with_python() notices when the interpreter ends.  To be called
// once.  REQUIRES: the GIL is held.
void leave_python_at_exit();

// Says that a thread is about to take the GIL, and that it has it; false if it
// must not any more.  For with_python() only.
[[nodiscard]] bool begin_entering();
void end_entering();

// Runs `call` with the GIL; returns false without doing so if the interpreter
// ends.
//
// Until Python 3.13 a thread that wants the GIL while the interpreter ends has
// its stack unwound, which nobody here would survive; it stops here instead.
// `call` must leave nothing to the destructors of its variables that needs the
// GIL.
template <class Call>
bool with_python(Call call) {
  if (!begin_entering()) return false;
  try {
    const PyGILState_STATE state = PyGILState_Ensure();
    end_entering();
    call();
    PyGILState_Release(state);
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
  return true;
}

}  // namespace gristmill::bind
