"""Tests that Accelerate prepares our loader like torch's after install()."""

import accelerate
import accelerate.data_loader
import accelerate.utils
import pytest
import torch
import torch.utils.data
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler

from gristmill._torch import loader as loader_module
from gristmill.torch import DataLoader, StatefulDataLoader, install, uninstall
from trainers.small import SAMPLES, Noisy, Plain, line

TorchLoader = torch.utils.data.DataLoader
pytestmark = [pytest.mark.multiprocess, pytest.mark.usefixtures("uninstalled")]


class Stream(IterableDataset):
    """Gives the numbers of `Plain` in order."""

    def __iter__(self):
        return iter(torch.arange(float(SAMPLES)))

    def __len__(self):
        return SAMPLES


@pytest.fixture(autouse=True)
def forgetful_accelerate():
    """Reset Accelerate, which keeps its first settings otherwise."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def accelerator(**settings):
    return accelerate.Accelerator(
        cpu=True,
        dataloader_config=accelerate.utils.DataLoaderConfiguration(**settings),
    )


def fitted(loader_class, **options):
    """Return losses and weights after two epochs; the second skips two batches."""
    accelerate.utils.set_seed(3)
    preparing = accelerator(use_seedable_sampler=True)
    plain = line()
    model, optimizer, loader = preparing.prepare(
        plain,
        torch.optim.SGD(plain.parameters(), 0.001),
        loader_class(Noisy(), batch_size=3, shuffle=True, **options),
    )
    losses = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        rest = accelerate.skip_first_batches(loader, 2) if epoch else loader
        for x, y in rest:
            loss = torch.nn.functional.mse_loss(model(x), y)
            preparing.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, [p.tolist() for p in plain.parameters()]


@pytest.mark.parametrize(
    ("options", "iterator"),
    [({}, "SingleProcessIterator"), ({"num_workers": 2}, "MultiProcessIterator")],
    ids=["no workers", "workers"],
)
def test_training_with_our_batches_matches_torch(watch, options, iterator):
    theirs = fitted(TorchLoader, **options)
    assert not watch.batches
    install()
    assert fitted(DataLoader, **options) == theirs
    # Four batches, and two more after the two that are skipped.
    assert watch.batches == {iterator: 4 + 2}
    assert len(theirs[0]) == 6


def test_torch_loader_is_prepared_as_ours(watch):
    install()
    prepared = accelerator().prepare(TorchLoader(Plain(), 4))
    assert [batch.tolist() for batch in prepared][2] == [8, 9]
    assert watch.batches == {"SingleProcessIterator": 3}


def test_without_install_warns_and_builds_torch_loader(watch, monkeypatch):
    monkeypatch.setattr(loader_module, "_warned_of_accelerate", False)
    with pytest.warns(UserWarning, match=r"Call gristmill\.torch\.install") as warned:
        loader = DataLoader(Plain(), 5)
        DataLoader(Plain(), 5)
    assert len(warned) == 1
    prepared = accelerator().prepare(loader)
    assert type(prepared.base_dataloader) is TorchLoader
    assert [len(batch) for batch in prepared] == [5, 5]
    assert not watch.batches


def test_uninstall_restores_torch_and_keeps_our_loaders(watch):
    install()
    ours = accelerator().prepare(DataLoader(Plain(), 5))
    uninstall()
    theirs = accelerator().prepare(TorchLoader(Plain(), 5))
    assert accelerate.data_loader.DataLoader is TorchLoader
    assert type(theirs.base_dataloader) is TorchLoader
    assert [len(batch) for batch in theirs] == [5, 5]
    assert not watch.batches
    assert [len(batch) for batch in ours] == [5, 5]
    assert watch.batches == {"SingleProcessIterator": 2}


def test_install_options_reach_built_loaders():
    install(max_restarts=2, reorder_window=9)
    loader = DataLoader(Plain(), 4, num_workers=1)
    prepared = accelerator().prepare(loader)
    skipping = accelerate.skip_first_batches(loader, 1)
    for built in (prepared, skipping):
        assert (built.max_restarts, built.reorder_window) == (2, 9)


def stopped_and_resumed(workers):
    """Return the loader's class, two batches, the rest, and the rest after a resume."""

    def prepared():
        return accelerator(use_stateful_dataloader=True).prepare(
            TorchLoader(Plain(), 2, shuffle=True, num_workers=workers)
        )

    accelerate.utils.set_seed(3)
    first = prepared()
    batches = iter(first)
    begun = [next(batches).tolist() for _ in range(2)]
    state = first.state_dict()
    rest = [batch.tolist() for batch in batches]
    second = prepared()
    second.load_state_dict(state)
    resumed = [batch.tolist() for batch in second]
    return type(second.base_dataloader), begun, rest, resumed


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_stateful_loader_is_ours_and_resumes(workers):
    theirs = stopped_and_resumed(workers)
    install()
    ours = stopped_and_resumed(workers)
    assert theirs[0] is not StatefulDataLoader
    assert ours[0] is StatefulDataLoader
    assert ours[1:3] == theirs[1:3]
    assert ours[3] == ours[2]
    assert len(ours[3]) == 3


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize("seedable", [True, False])
def test_stateful_loader_has_the_order_and_draws_of_torchdata(seedable):
    def epochs():
        accelerate.utils.set_seed(3)
        preparing = accelerator(
            use_stateful_dataloader=True, use_seedable_sampler=seedable
        )
        prepared = preparing.prepare(TorchLoader(Plain(), 2, shuffle=True))
        found = [torch.get_rng_state().tolist()]
        for _ in range(2):
            found += [[batch.tolist() for batch in prepared], torch.rand(1)]
        return found

    theirs = epochs()
    accelerate.state.AcceleratorState._reset_state()
    install()
    assert epochs() == theirs


def shares(loader_class):
    """Return the batches that this process reads, for every way to prepare a loader."""
    epochs = {}
    for name, dataset, settings in (
        ("shards", Plain(), {"use_seedable_sampler": True}),
        ("split", Plain(), {"split_batches": True}),
        ("dispatched", Stream(), {"dispatch_batches": True}),
        ("iterable shards", Stream(), {"dispatch_batches": False}),
    ):
        accelerate.utils.set_seed(5)
        shuffle = None if isinstance(dataset, Stream) else True
        loader = loader_class(dataset, batch_size=2, shuffle=shuffle)
        prepared = accelerator(**settings).prepare(loader)
        epochs[name] = [[batch.tolist() for batch in prepared] for _ in range(2)]
        rest = accelerate.skip_first_batches(prepared, 1)
        epochs[f"rest of {name}"] = [batch.tolist() for batch in rest]
        accelerate.state.AcceleratorState._reset_state()
    return epochs


def read_in_two_processes(folder):
    theirs = shares(TorchLoader)
    install()
    built = accelerator().prepare(DataLoader(Plain(), 2, shuffle=True))
    seen = {
        "theirs": theirs,
        "ours": shares(DataLoader),
        "class": type(built.base_dataloader),
        "sampler": type(built.batch_sampler).__name__,
    }
    torch.save(seen, folder / f"{accelerate.PartialState().process_index}.pt")


def test_shares_of_two_processes_match_torch(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    accelerate.debug_launcher(read_in_two_processes, (tmp_path,), num_processes=2)
    seen = [
        torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2)
    ]
    for rank in seen:
        assert rank["ours"] == rank["theirs"]
        assert (rank["class"], rank["sampler"]) == (DataLoader, "BatchSamplerShard")
    first, second = (rank["ours"]["shards"] for rank in seen)
    for halves in zip(first, second, strict=True):
        read = {number for half in halves for batch in half for number in batch}
        assert read == set(range(SAMPLES))
    assert first[0] != first[1]


def test_samplers_are_found_by_accelerate():
    loader = DataLoader(Plain(), 4, shuffle=True)
    assert type(accelerate.data_loader.get_sampler(loader)) is RandomSampler
    assert type(loader.batch_sampler) is BatchSampler
