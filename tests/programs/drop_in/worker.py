import sys

import gristmill.drop_in

gristmill.drop_in.install_if_enabled()
print("grain" in sys.modules)
