"""Nothing is visible from Python: other compiled modules import it by its .pxd."""
