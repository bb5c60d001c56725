#include "bindings/base/shared_object.hpp"

#include "bindings/with_python.hpp"

namespace gristmill::bind {

std::shared_ptr<const void> share(PyObject* stolen) {
  return {stolen, [](const void* object) {
            static_cast<void>(with_python([object] {
              Py_DECREF(static_cast<PyObject*>(const_cast<void*>(object)));
            }));
          }};
}

Status take_raised() {
#if PY_VERSION_HEX >= 0x030C0000
  return Status::raised(share(PyErr_GetRaisedException()), "");
#else
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return Status::raised(share(value), "");
#endif
}

}  // namespace gristmill::bind
