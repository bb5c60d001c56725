import sys

# Not found through the environment, which some options ignore.
sys.path[:0] = sys.argv[1:]

from faults.toolbox import Add, digest, loader, undisturbed  # noqa: E402

found = digest(loader([Add()]))
# No assertion: an option takes those away.
if found != undisturbed([Add()]) or len(found) != 24:
    raise SystemExit("it differs")
