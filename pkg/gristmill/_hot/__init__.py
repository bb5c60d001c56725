"""The loops that touch a Python object per element.

Each module here is compiled and has a plain-Python twin of the same name in
``gristmill._slow``; ``signals`` holds the two exceptions that the twins share.
"""
