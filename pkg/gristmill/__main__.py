"""Makes ``python -m gristmill`` the same as ``gristmill``."""

import sys

if __name__ == "__main__":  # Not in the worker processes of a conversion.
    from gristmill._cli import main

    sys.exit(main())
