// Calls of Python from threads of the core: with the GIL, and only until the
// interpreter shuts down.
//
// Thread safety: any thread may call any function.
#pragma once

#include <cxxabi.h>
#include <unistd.h>

#include "bindings/bind.hpp"

namespace gristmill::bind {

// Registers an exit handler, so that with_python() makes no more calls after
// the interpreter starts to shut down.  Must be called once. REQUIRES: the GIL
// is held.
void leave_python_at_exit();

// Counts a thread that is about to acquire the GIL, and stops counting it after
// it has the GIL.  begin_entering() returns false, and does not count the
// thread, if the interpreter is shutting down.  Only with_python() uses them.
[[nodiscard]] bool begin_entering();
void end_entering();

// Runs `call` with the GIL and returns true.  If the interpreter is shutting
// down, returns false without running it.
//
// Up to Python 3.13, a thread that acquires the GIL during the shutdown has its
// stack unwound, which would terminate the process.  Such a thread waits here
// until the process ends.  The unwinding destroys the variables of `call`
// without the GIL, so their destructors must not need it.
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
