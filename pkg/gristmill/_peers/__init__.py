"""What programs written for other packages expect: Keras, absl, Grain's tree functions.

Each file is about one package, and is imported when that is.  Begin with
`keras.py`.
"""
