"""Exports nothing to Python; other compiled modules import it by its .pxd."""
