import sys

heavy = {"jax", "torch", "orbax", "pyarrow", "absl", "array_record", "grain"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
