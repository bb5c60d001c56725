"""Plain-Python twins of the modules of ``gristmill._hot``.

They say in the simplest words what the compiled modules do, and the tests run
every case on both.
"""
