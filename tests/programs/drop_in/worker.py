import sys

import gristmill.drop_in

gristmill.drop_in.install_if_asked()
print("grain" in sys.modules)
