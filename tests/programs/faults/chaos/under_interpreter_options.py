import sys

# Some options ignore the environment, so the paths are passed as arguments.
sys.path[:0] = sys.argv[1:]

from faults.toolbox import Add, digest, loader, undisturbed  # noqa: E402

found = digest(loader([Add()]))
# Not `assert`, which one of the options disables.
if found != undisturbed([Add()]) or len(found) != 24:
    raise SystemExit("it differs")
