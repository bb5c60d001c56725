import os

from programs.torch_loader.start_method.reading import all_come

os.closerange(3, 1024)
all_come()
