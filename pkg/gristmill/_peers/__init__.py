"""Support for programs written for other packages: Keras, absl, Grain's tree functions.

Each module supports one package, and is imported when that package is.  Start reading
at `keras.py`.
"""
