"""Pretrain a small language model on ranks whose number changes in the middle.

    python examples/pretrain.py [--framework torch] [--picture pretrain.png]

The text is the standard library's source code: its functions and classes are one
source, its docstrings another.  Both are tokenized once.  A plan packs the documents
of each source into rows of 256 tokens, and the rows are mixed: 70 % code, 30 % prose.
A transformer is trained on 8 ranks, which this program simulates in one process, and
again with a stop in the middle, after which 4 ranks continue from the saved state.  In
both runs each step gets the same rows, so the losses are equal.  The script prints and
draws both curves.

    pip install 'gristmill[demo]' tokenizers
"""

import argparse
import ast
import pathlib
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from text_pipeline import train_tokenizer

import gristmill as grain

LENGTH = 256  # Tokens per row.
GLOBAL_BATCH = 16  # Rows per step of all ranks together.
VOCABULARY = 2048
END = 0  # The token after each document.
WEIGHTS = {"code": 0.7, "prose": 0.3}
SEED = 3
WIDTH, HEADS, LAYERS = 96, 4, 2
LEARNING_RATE = 3e-3

Batch = dict[str, np.ndarray]


# The data: two files of token ids.


def documents(limit: int) -> dict[str, list[str]]:
    """Return up to `limit` functions and classes, and as many docstrings."""
    texts: dict[str, list[str]] = {"code": [], "prose": []}
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines(keepends=True)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                texts["code"].append("".join(lines[node.lineno - 1 : node.end_lineno]))
                if docstring := ast.get_docstring(node):
                    texts["prose"].append(docstring)
        if all(len(some) >= limit for some in texts.values()):
            break
    return {name: some[:limit] for name, some in texts.items()}


def write_tokens(folder: pathlib.Path, limit: int) -> dict[str, pathlib.Path]:
    """Tokenize up to `limit` documents of each source; return the paths by source."""
    texts = documents(limit)
    every = [{"description": text} for some in texts.values() for text in some]
    tokenizer = train_tokenizer(folder / "tokenizer.json", every, VOCABULARY)
    tokenize = grain.transforms.Tokenize(tokenizer, suffix=[END], dtype=np.uint16)
    paths = {}
    for name, some in texts.items():
        paths[name] = folder / f"{name}.npy"
        tokens = grain.MapDataset.source(some).apply(tokenize)
        np.concatenate(list(tokens)).tofile(paths[name])
    return paths


# The rows: element k is the same on every rank.


def packed_rows(paths: dict[str, pathlib.Path]) -> grain.MapDataset:
    """Return the rows of all sources, mixed by their weights."""
    packed = []
    for name in WEIGHTS:
        source = grain.sources.TokenArrayDataSource(paths[name], np.uint16, eos_id=END)
        documents = grain.MapDataset.source(source)
        packed.append(documents.pack(LENGTH, seed=SEED, num_epochs=2))
    return grain.MapDataset.mix(packed, list(WEIGHTS.values()))


def start_ranks(
    paths: dict[str, pathlib.Path], ranks: int, state: Any = None
) -> list[Any]:
    """Return the iterator of each rank; `state` may come from any number of ranks."""
    iterators = []
    for rank in range(ranks):
        share = grain.ShardOptions(shard_index=rank, shard_count=ranks)
        rows = packed_rows(paths)
        iterator = grain.experimental.ElasticIterator(rows, GLOBAL_BATCH, share)
        if state is not None:
            iterator.set_state(state)
        iterators.append(iterator)
    return iterators


def next_global_batch(iterators: list[Any]) -> Batch:
    """Return the batches of all ranks as one, in the order of the rows."""
    batches = [next(iterator) for iterator in iterators]
    return {
        # Rank r of R has rows r, r + R, r + 2 R, ...
        name: np.stack([batch[name] for batch in batches], axis=1).reshape(
            GLOBAL_BATCH, LENGTH
        )
        for name in ("tokens", "tokens_segment_ids", "tokens_positions")
    }


# The model: a transformer whose tokens attend to earlier ones of their document.


def new_parameters() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)

    def weights(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.5 * shape[0] ** -0.5, shape).astype(np.float32)

    parameters = {
        "token": 0.02 * weights(1, VOCABULARY, WIDTH)[0],
        "position": 0.02 * weights(1, LENGTH, WIDTH)[0],
    }
    for layer in range(LAYERS):
        parameters[f"qkv{layer}"] = weights(WIDTH, 3 * WIDTH)
        parameters[f"out{layer}"] = weights(WIDTH, WIDTH)
        parameters[f"up{layer}"] = weights(WIDTH, 4 * WIDTH)
        parameters[f"down{layer}"] = weights(4 * WIDTH, WIDTH)
    return parameters


def jax_trainer() -> Callable[[Batch], float]:
    """Return a function that trains on a batch, and returns its loss."""
    import jax
    import jax.numpy as jnp

    def normalize(x):
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(
            x.var(-1, keepdims=True) + 1e-5
        )

    def loss(parameters, tokens, segments, positions):
        rows, length = tokens.shape
        x = parameters["token"][tokens] + parameters["position"][positions]
        visible = jnp.tril(jnp.ones((length, length), bool)) & (
            segments[:, :, None] == segments[:, None, :]
        )
        for layer in range(LAYERS):
            qkv = normalize(x) @ parameters[f"qkv{layer}"]
            q, k, v = jnp.moveaxis(qkv.reshape(rows, length, 3, HEADS, -1), 2, 0)
            scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
            share = jax.nn.softmax(jnp.where(visible[:, None], scores, -1e9))
            mixed = jnp.einsum("bhqk,bkhd->bqhd", share, v).reshape(x.shape)
            x = x + mixed @ parameters[f"out{layer}"]
            hidden = jax.nn.gelu(normalize(x) @ parameters[f"up{layer}"])
            x = x + hidden @ parameters[f"down{layer}"]
        logits = (normalize(x) @ parameters["token"].T)[:, :-1]
        log_shares = jax.nn.log_softmax(logits)
        targets = jnp.take_along_axis(log_shares, tokens[:, 1:, None], 2)[..., 0]
        counted = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
        return -(targets * counted).sum() / counted.sum()

    @jax.jit
    def step(parameters, means, squares, number, tokens, segments, positions):
        value, gradient = jax.value_and_grad(loss)(
            parameters, tokens, segments, positions
        )
        means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradient)
        squares = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g**2, squares, gradient)

        def move(p, m, s):
            mean, square = m / (1 - 0.9**number), s / (1 - 0.99**number)
            return p - LEARNING_RATE * mean / (jnp.sqrt(square) + 1e-8)

        return jax.tree.map(move, parameters, means, squares), means, squares, value

    parameters = jax.tree.map(jnp.asarray, new_parameters())
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    training = (parameters, zeros, zeros)
    number = 0

    def train(batch: Batch) -> float:
        nonlocal training, number
        number += 1
        arrays = [np.asarray(field, np.int32) for field in batch.values()]
        *training, value = step(*training, number, *arrays)
        return float(value)

    return train


def torch_trainer() -> Callable[[Batch], float]:
    """Return a function that trains on a batch, and returns its loss."""
    import torch
    from torch.nn import functional

    parameters = {
        name: torch.tensor(value, requires_grad=True)
        for name, value in new_parameters().items()
    }
    optimizer = torch.optim.Adam(
        parameters.values(), LEARNING_RATE, betas=(0.9, 0.99), eps=1e-8
    )

    def normalize(x):
        return functional.layer_norm(x, x.shape[-1:])

    def loss(tokens, segments, positions):
        rows, length = tokens.shape
        x = parameters["token"][tokens] + parameters["position"][positions]
        visible = torch.ones(length, length, dtype=torch.bool).tril() & (
            segments[:, :, None] == segments[:, None, :]
        )
        for layer in range(LAYERS):
            qkv = normalize(x) @ parameters[f"qkv{layer}"]
            q, k, v = qkv.view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, k, v, visible[:, None])
            mixed = mixed.transpose(1, 2).reshape(x.shape)
            x = x + mixed @ parameters[f"out{layer}"]
            hidden = normalize(x) @ parameters[f"up{layer}"]
            hidden = functional.gelu(hidden, approximate="tanh")
            x = x + hidden @ parameters[f"down{layer}"]
        logits = (normalize(x) @ parameters["token"].T)[:, :-1]
        counted = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
        return functional.cross_entropy(logits[counted], tokens[:, 1:][counted])

    def train(batch: Batch) -> float:
        value = loss(
            *(torch.from_numpy(np.asarray(field, np.int64)) for field in batch.values())
        )
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return float(value.detach())

    return train


TRAINERS = {"jax": jax_trainer, "torch": torch_trainer}


# The runs.


def train(
    make: Callable[[int, Any], list[Any]], framework: str, plan: list[tuple[int, int]]
) -> Iterator[float]:
    """Train by a plan of (ranks, steps), and yield the loss of each step."""
    train_step = TRAINERS[framework]()
    state = None
    for ranks, steps in plan:
        iterators = make(ranks, state)
        for _ in range(steps):
            yield train_step(next_global_batch(iterators))
        state = iterators[0].get_state()  # The same on each rank.
        for iterator in iterators:
            iterator.close()


def draw(path: pathlib.Path, curves: dict[str, list[float]], stop: int) -> None:
    """Draw the losses by step, and the step of the restart."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4))
    styles = [{"linewidth": 5, "alpha": 0.4}, {"linewidth": 1.2, "color": "black"}]
    for (name, losses), style in zip(curves.items(), styles, strict=True):
        axis.plot(range(1, len(losses) + 1), losses, label=name, **style)
    axis.axvline(stop + 0.5, linestyle=":", color="gray")
    axis.set(xlabel="step", ylabel="loss")
    axis.legend(frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"The curves are drawn in {path}.")


def run(folder: pathlib.Path, options: argparse.Namespace) -> None:
    paths = write_tokens(folder, options.documents)
    rows = packed_rows(paths)
    print(f"{len(rows):,} rows of {LENGTH} tokens")

    def make(ranks: int, state: Any) -> list[Any]:
        return start_ranks(paths, ranks, state)

    stop = options.steps // 2
    before, after = options.ranks
    plans = {
        f"{before} ranks": [(before, options.steps)],
        f"{before} ranks, then {after}": [
            (before, stop),
            (after, options.steps - stop),
        ],
    }
    curves = {}
    for name, plan in plans.items():
        losses = []
        for loss in train(make, options.framework, plan):
            losses.append(loss)
            print(
                f"\r{name}: step {len(losses)}/{options.steps}  loss {loss:.4f}",
                end="",
                flush=True,
            )
        print()
        curves[name] = losses
    uninterrupted, restarted = curves.values()
    if uninterrupted != restarted:
        raise SystemExit("The losses differ: the restart changed the rows.")
    print(f"All {options.steps} losses are equal.")
    draw(options.picture, curves, stop)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--framework", choices=TRAINERS, default="jax")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--ranks", type=int, nargs=2, default=[8, 4])
    parser.add_argument("--documents", type=int, default=2_000, help="of each source")
    parser.add_argument(
        "--picture", type=pathlib.Path, default=pathlib.Path("pretrain.png")
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(pathlib.Path(folder), options)


if __name__ == "__main__":
    main()
