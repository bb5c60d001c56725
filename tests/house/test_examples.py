"""The examples run, with settings small enough for a test."""

import importlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from faults.scripts import environment
from support import extras
from support.places import ROOT

EXAMPLES = ROOT / "examples"
# Compilation by JAX takes longer than the few steps save. Threads of torch wait busily,
# on cores that other tests need.
FASTER = {"XLA_FLAGS": "--xla_backend_optimization_level=0", "OMP_NUM_THREADS": "1"}
# Keep all compiled functions, because some examples compile them several times.
CACHED = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def run(name, *arguments, **variables):
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        cache = {"JAX_COMPILATION_CACHE_DIR": folder, **CACHED}
        environment = {**os.environ, **FASTER, **cache, **variables}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, env=environment
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.multiprocess
def test_text_pipeline_prints_rates_and_waiting_times():
    printed = run(
        "text_pipeline.py",
        *("--documents", 1200, "--batch-size", 4, "--batches", 5),
        *("--workers", 2, 16, "--steps", 4, "--step-seconds", 0.01),
    )
    lines = printed.splitlines()
    assert lines[0] == "1200 documents through gristmill"
    assert [line.split()[0] for line in lines if "first batch" in line] == [
        "0",
        "2",
        "16",
    ]
    rates = re.findall(r"([\d,]+) rows/s, ([\d,]+) tokens/s", printed)
    assert len(rates) == 3
    for rows, tokens in rates:
        # Rows of up to 128 tokens are nearly full.
        per_row = int(tokens.replace(",", "")) / int(rows.replace(",", ""))
        assert 100 < per_row <= 129
    waits = re.findall(r"waits +([\d.]+)% of the time: (.*)", printed)
    assert [name for _, name in waits] == 3 * [
        "as it is",
        "a thread prefetches",
        "and starts while the model is restored",
    ]
    assert all(0 <= float(share) <= 100 for share, _ in waits)


@pytest.fixture
def example(monkeypatch):
    """Return a function that imports an example as a module."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def assert_same_batches(ours, theirs, count):
    ours, theirs = (list(itertools.islice(it, count)) for it in (ours, theirs))
    assert len(ours) == len(theirs) == count
    for our, their in zip(ours, theirs, strict=True):
        assert our.keys() == their.keys()
        for key in their:
            assert our[key].dtype == their[key].dtype
            np.testing.assert_array_equal(our[key], their[key])


def test_text_pipeline_batches_equal_grains(tmp_path, example):
    module = example("text_pipeline")
    text = module.write_text(tmp_path, 400)
    ours, theirs = (
        module.pipeline(module.import_library(name), text, 4, 0)
        for name in ("gristmill", "grain")
    )
    assert_same_batches(ours, theirs, 20)


def test_text_pipeline_also_runs_with_grain():
    extras.need("grain", "tokenizers")
    command = [sys.executable, str(EXAMPLES / "text_pipeline.py")]
    command += ["--library", "grain", "--workers", "--documents", "300"]
    command += ["--batch-size", "4", "--batches", "2", "--steps", "2"]
    command += ["--step-seconds", "0.01"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("300 documents through grain\n 0 workers: first")


@pytest.mark.multiprocess
def test_maxtext_pipeline_resumes_with_same_and_other_hosts():
    printed = run("maxtext_pipeline.py", "--steps", 3).splitlines()
    assert len(printed) == 3
    for host, line in enumerate(printed[:2]):
        assert line.startswith(f"host {host}: 3 steps of 6 rows, ")
        assert line.endswith("after a restart the same rows follow")
    assert printed[2].startswith(
        "elastic: 3 steps of 2 hosts, then 3 of 3, gave the rows of 6 steps of 1"
    )


@pytest.mark.multiprocess
def test_flax_training_resumes_exactly_from_orbax():
    printed = run("flax_nnx_orbax.py").splitlines()
    assert [line for line in printed if not line.startswith(" ")] == [
        "Without a stop:",
        "Stopped after 139 steps, 6.19 epochs:",
        "Restored:",
        "Weights, optimizer and generators are the same, bit for bit.",
    ]
    # The last losses of the uninterrupted and of the restored run.
    assert printed[1].split()[-1] == printed[-2].split()[-1]


@pytest.mark.multiprocess
def test_torch_loop_weights_equal_torchs_loader():
    printed = run("torch_loop.py", "--epochs", 2).splitlines()
    line = (
        r"(torch|gristmill) +first batch after [0-9.]+ s, then 23 batches in [0-9.]+ s,"
        r" [0-9.]+ s of processor time, test accuracy [0-9.]+%"
    )
    found = [re.fullmatch(line, each) for each in printed[:2]]
    assert [each and each[1] for each in found] == ["torch", "gristmill"]
    assert printed[2:] == ["The weights are the same, bit for bit."]


@pytest.mark.multiprocess
@pytest.mark.parametrize("with_torchrun", [True, False])
def test_ddp_share_weights_equal_those_of_own_loaders(with_torchrun):
    extras.need("torch", "sklearn")
    program = [str(EXAMPLES / "ddp_share.py"), "--epochs", "2"]
    if with_torchrun:
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
        program = [*launcher, *program]
    done = subprocess.run(
        [sys.executable, *program],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **FASTER},
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    if not with_torchrun:
        start = "Started without torchrun: this program starts 2 ranks."
        assert lines.pop(0) == start
    assert re.fullmatch(r"2 ranks: the mean of the last losses is [\d.]+", lines[0])
    assert lines[1:] == ["The weights are the same, bit for bit."]


@pytest.mark.multiprocess
def test_torch_lightning_resumes_exactly_in_mid_epoch():
    printed = run("torch_lightning.py").splitlines()
    assert printed[0].startswith("Without a stop: 92 steps, 5748 images, test accuracy")
    # 50 steps are two epochs of 1437 images and four batches of 64.
    assert printed[1:] == [
        f"From step 50, after 2.17 epochs: {5748 - 2 * 1437 - 4 * 64} images",
        "The weights are the same, bit for bit.",
    ]


@pytest.mark.multiprocess
def test_torch_accelerate_uses_our_loader_and_resumes():
    printed = run("torch_accelerate.py").splitlines()
    assert printed[0] == "Accelerate has built a loader of gristmill.torch"
    assert printed[1].startswith("Without a stop: 69 batches, test accuracy")
    assert printed[2:] == [
        f"From epoch 1, batch 7: {69 - 23 - 7} batches",
        "The weights are the same, bit for bit.",
    ]


@pytest.mark.multiprocess
def test_torch_transformers_losses_equal_torchs():
    printed = run("torch_transformers.py", "--steps", 8).splitlines()
    source = "The Trainer takes its batches from"
    assert [line for line in printed if line.startswith(source)] == [
        f"{source} torch.utils.data.dataloader",
        f"{source} gristmill.torch",
    ]
    assert re.fullmatch(r"Both have logged these losses:( \d\.\d{3}){4}", printed[-1])


@pytest.mark.multiprocess
@pytest.mark.parametrize("name", ["train_photographs.py", "torch_photographs.py"])
def test_photograph_models_recognize_unseen_tiles(name):
    printed = run(name, "--epochs", 2).splitlines()
    assert printed[0] == "1440 pictures of 12 classes, 360 to test"
    line = re.fullmatch(
        r"4[45] batches in [\d.]+ s; (\d+)% of the unseen tiles are recognized\.",
        printed[-1],
    )
    assert int(line[1]) > 30  # Guessing would give one in twelve.


def test_maxtext_pipeline_batches_equal_grains(tmp_path, example):
    module = example("maxtext_pipeline")
    paths, tokenize = module.write_corpora(tmp_path)
    ours, theirs = (
        module.batches_of_host(
            example("text_pipeline").import_library(name), paths, tokenize, 1, 2
        )
        for name in ("gristmill", "grain")
    )
    assert_same_batches(ours, theirs, 8)


def test_maxtext_pipeline_targets_stay_within_a_document(example):
    shift = example("maxtext_pipeline").shift
    tokens = np.array([5, 6, 7, 8, 9, 0])
    segments = np.array([1, 1, 1, 2, 2, 0], np.int32)
    places = np.array([0, 1, 2, 0, 1, 0], np.int32)
    features = {"": tokens, "_segment_ids": segments, "_positions": places}
    row = shift(
        {
            f"{side}{name}": values
            for side in ("inputs", "targets")
            for name, values in features.items()
        }
    )
    assert row["inputs"].tolist() == [5, 6, 7, 8, 9, 0]
    assert row["targets"].tolist() == [6, 7, 0, 9, 0, 0]
    assert row["targets_segmentation"].tolist() == [1, 1, 0, 2, 0, 0]
    assert row["inputs_segmentation"].tolist() == [1, 1, 1, 2, 2, 0]


def test_maxtext_pipeline_checkpoints_as_json_without_orbax(
    tmp_path, example, monkeypatch
):
    module = example("maxtext_pipeline")
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    dataset = module.gristmill.MapDataset.range(5).to_iter_dataset()
    iterator, restored = iter(dataset), iter(dataset)
    next(iterator)
    module.Checkpoints(tmp_path).save(1, iterator)
    assert json.loads((tmp_path / "1.json").read_text()) == {"next_index": 1}
    module.Checkpoints(tmp_path).restore(1, restored)
    assert list(restored) == [1, 2, 3, 4]


@pytest.mark.multiprocess
def test_pretraining_has_equal_losses_on_other_ranks_and_frameworks(tmp_path):
    picture = tmp_path / "losses.png"
    losses = {}
    for framework in ("jax", "torch"):
        printed = run(
            "pretrain.py",
            *("--framework", framework, "--steps", 4, "--ranks", 4, 2),
            *("--documents", 150, "--picture", picture),
            XLA_FLAGS="",  # Its steps take long enough to be worth compilation.
        )
        assert "All 4 losses are equal.\n" in printed
        assert picture.stat().st_size > 10_000
        losses[framework] = [*map(float, re.findall(r"loss ([\d.]+)", printed))]
    assert len(losses["jax"]) == 8
    assert losses["jax"] == pytest.approx(losses["torch"], abs=2e-4)
    assert losses["jax"][3] < losses["jax"][0]


@pytest.mark.multiprocess
def test_notebook_has_the_outputs_of_a_run():
    notebook = nbformat.read(EXAMPLES / "digits.ipynb", as_version=4)
    nbformat.validate(notebook)
    kept = printed_by_cells(notebook)
    assert all(kept)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute(
        env={**environment(), **FASTER}
    )
    for cell, before, after in zip(
        notebook.cells, kept, printed_by_cells(notebook), strict=True
    ):
        # The numbers of a report differ.
        if "varies" in cell.metadata.get("tags", ()):
            assert after.startswith("Limit: ")
        else:
            assert after == before


def printed_by_cells(notebook):
    """Return the text of each cell of Markdown, or what a cell of code has printed."""
    return [
        "".join(output.text for output in cell.outputs if output.name == "stdout")
        if cell.cell_type == "code"
        else cell.source
        for cell in notebook.cells
    ]
