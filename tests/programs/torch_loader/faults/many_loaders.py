from programs.torch_loader.faults.squares import make

iterators = [iter(make(num_workers=n, batch_size=None)) for n in (1, 2, 3)]
given = [[int(t[0]) for t in batches] for batches in zip(*iterators, strict=True)]
assert given == [[i * i] * 3 for i in range(64)]
