"""Fits a small GPT-2 with `Trainer`, evaluates, predicts, and resumes mid-epoch."""

import pathlib

import numpy as np
import torch
import transformers

LENGTHS = [3 + 5 * index % 11 for index in range(44)]


class Sentences(torch.utils.data.Dataset):
    """Random tokens of different lengths."""

    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        return {"input_ids": rng.integers(1, 32, LENGTHS[index]).tolist()}


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        sentences = Sentences()
        return (sentences[index] for index in range(len(sentences)))


def collate(samples):
    """Pad sentences with zeros, and drop some tokens at random."""
    longest = max(len(sample["input_ids"]) for sample in samples)
    rows = [
        sample["input_ids"] + [0] * (longest - len(sample["input_ids"]))
        for sample in samples
    ]
    ids = torch.tensor(rows)
    ids = torch.where(torch.rand(ids.shape) < 0.1, 0, ids)
    return {
        "input_ids": ids,
        "attention_mask": (ids > 0).long(),
        "labels": torch.where(ids > 0, ids, -100),
    }


class Recorder(transformers.Trainer):
    """Keeps the batches of all steps."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = []

    def training_step(self, model, inputs, *args, **kwargs):
        loss = super().training_step(model, inputs, *args, **kwargs)
        self.seen.append((dict(inputs), float(loss)))
        return loss


def make_trainer(folder, dataset, workers, **options):
    transformers.set_seed(5)
    config = transformers.GPT2Config(
        vocab_size=32, n_positions=16, n_embd=8, n_layer=1, n_head=2
    )
    arguments = transformers.TrainingArguments(
        folder,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=5,
        learning_rate=1e-2,
        logging_steps=3,
        dataloader_num_workers=workers,
        **{"num_train_epochs": 2, "save_strategy": "no", **options},
    )
    return Recorder(
        transformers.GPT2LMHeadModel(config),
        arguments,
        data_collator=collate,
        train_dataset=dataset,
        eval_dataset=Sentences(),
    )


def logged(trainer):
    """Return the logs without durations and speeds."""
    return [
        {key: value for key, value in entry.items() if not is_time(key)}
        for entry in trainer.state.log_history
    ]


def is_time(key):
    return key.endswith(("_runtime", "_per_second"))


def fitted(dataset, workers, **options):
    trainer = make_trainer("fitted", dataset, workers, **options)
    trainer.train()
    yield "steps", trainer.seen
    metrics = trainer.evaluate()
    yield "metrics", {key: metrics[key] for key in metrics if not is_time(key)}
    yield "predictions", trainer.predict(Sentences()).predictions
    yield "logs", logged(trainer)
    yield "weights", dict(trainer.model.state_dict())


def resumed(workers):
    """Yield the steps of a run that resumes another run at step 15."""
    folder = f"resumed-{workers}"
    options = {"save_strategy": "steps", "save_steps": 15}
    make_trainer(folder, Sentences(), workers, **options).train()
    trainer = make_trainer(folder, Sentences(), workers, **options)
    trainer.train(resume_from_checkpoint=str(pathlib.Path(folder, "checkpoint-15")))
    yield "steps", trainer.seen
    yield "weights", dict(trainer.model.state_dict())


def main():
    sentences = Sentences()
    for kind, values in {
        "fitted": fitted(sentences, 0),
        "fitted by workers": fitted(sentences, 2),
        "grouped": fitted(sentences, 0, train_sampling_strategy="group_by_length"),
        "persistent": fitted(sentences, 2, dataloader_persistent_workers=True),
        "streamed": fitted(Stream(), 2, max_steps=9),
        "resumed": resumed(0),
        "resumed by workers": resumed(2),
    }.items():
        for name, value in values:
            yield f"{kind}: {name}", value
