import os
import sys

from faults.toolbox import Add, digest, loader, undisturbed

os.chdir(sys.argv[1])
os.rmdir(sys.argv[1])
sys.stdout.close()
sys.stdin.close()
sys.stdout = sys.stdin = None
assert digest(loader([Add()])) == undisturbed([Add()])
