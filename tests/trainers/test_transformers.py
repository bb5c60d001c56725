"""Tests that the Hugging Face Trainer trains with our loader after install()."""

import pytest
import torch
import torch.utils.data

from gristmill.torch import DataLoader, install, uninstall

TorchLoader = torch.utils.data.DataLoader
pytestmark = [pytest.mark.multiprocess, pytest.mark.usefixtures("uninstalled")]

STEPS = 4  # Batches per epoch.


class Sentences(torch.utils.data.Dataset):
    """Sixteen rows of eight tokens, labeled by the parity of their sum."""

    def __len__(self):
        return 16

    def __getitem__(self, index):
        tokens = (torch.arange(8) * (index + 1)) % 50
        return {"input_ids": tokens, "labels": int(tokens.sum()) % 2}


def trainer(folder, **settings):
    """Return a Trainer of a tiny model with dropout."""
    # Imported here, because the import makes each fork of this process slower.
    import transformers

    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
    )
    arguments = transformers.TrainingArguments(
        str(folder),
        use_cpu=True,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=8,
        num_train_epochs=2,
        eval_strategy="epoch",
        logging_steps=1,
        disable_tqdm=True,
        report_to=[],
        **{"save_strategy": "no", **settings},
    )
    return transformers.Trainer(
        transformers.BertForSequenceClassification(config),
        arguments,
        train_dataset=Sentences(),
        eval_dataset=Sentences(),
    )


def told(training):
    """Return the losses and gradients in the log of a Trainer, and its weights."""
    names = ("loss", "eval_loss", "grad_norm", "learning_rate", "step")
    logs = [
        {name: entry[name] for name in names if name in entry}
        for entry in training.state.log_history
    ]
    return logs, [p.tolist() for p in training.model.parameters()]


@pytest.mark.parametrize(
    ("settings", "iterator"),
    [
        ({}, "SingleProcessIterator"),
        (
            {"dataloader_num_workers": 1, "dataloader_persistent_workers": True},
            "MultiProcessIterator",
        ),
    ],
    ids=["no workers", "persistent"],
)
def test_training_with_our_batches_matches_torch(watch, tmp_path, settings, iterator):
    theirs = trainer(tmp_path, **settings)
    theirs.train()
    assert not watch.batches
    install()
    ours = trainer(tmp_path, **settings)
    ours.train()
    assert told(ours) == told(theirs)
    assert watch.batches == {iterator: 2 * (STEPS + 2)}
    assert len(told(ours)[0]) == 2 * (STEPS + 1) + 1


def test_training_resumes_in_mid_epoch_with_our_batches(watch, tmp_path):
    install()
    whole = trainer(tmp_path, save_strategy="steps", save_steps=STEPS + 2)
    whole.train()
    watch.batches.clear()
    rest = trainer(tmp_path)
    rest.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS + 2}"))
    # Half of the second epoch, and its evaluation.
    assert watch.batches == {"SingleProcessIterator": 2 + 2}
    assert told(rest)[1] == told(whole)[1]


def test_prediction_uses_our_batches(watch, tmp_path):
    install()
    predicted = trainer(tmp_path).predict(Sentences())
    assert predicted.predictions.shape == (16, 2)
    assert watch.batches == {"SingleProcessIterator": 2}


def test_trainer_builds_torch_loader_after_uninstall(watch, tmp_path):
    import transformers.trainer

    install()
    assert transformers.trainer.DataLoader is DataLoader
    uninstall()
    assert transformers.trainer.DataLoader is TorchLoader
    loader = trainer(tmp_path).get_train_dataloader()
    assert type(loader.base_dataloader) is TorchLoader
    assert len(list(loader)) == STEPS
    assert not watch.batches
