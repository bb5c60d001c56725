import grain  # noqa: F401

import gristmill.drop_in

try:
    gristmill.drop_in.install()
except RuntimeError as error:
    print("the real grain is imported already" in str(error))
