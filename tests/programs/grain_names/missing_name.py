import sys

import gristmill.drop_in

gristmill.drop_in.install()
try:
    exec(sys.argv[1])
except ImportError as error:
    print(type(error).__name__, error)
