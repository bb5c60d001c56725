"""Trains on two datasets at once, in batches without duplicates, and resumes."""

import random

import datasets
import sentence_transformers
import torch
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.models import StaticEmbedding
from sentence_transformers.training_args import BatchSamplers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

WORDS = "data loader batch worker epoch shuffle record state rank resume".split()


def pairs(name, count, seed):
    draws = random.Random(seed)
    texts = [" ".join(draws.choices(WORDS, k=5)) for _ in range(count)]
    return datasets.Dataset.from_dict(
        {
            "anchor": [texts[draws.randrange(count)] for _ in range(count)],
            "positive": [f"{name} {text}" for text in texts],
        }
    )


def model():
    tokenizer = Tokenizer(models.WordLevel(unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(special_tokens=["?"], show_progress=False)
    tokenizer.train_from_iterator([" ".join(WORDS)], trainer)
    torch.manual_seed(1)
    embedding = StaticEmbedding(tokenizer, embedding_dim=8)
    return sentence_transformers.SentenceTransformer(modules=[embedding], device="cpu")


class RecordedLoss(MultipleNegativesRankingLoss):
    """Keeps the batches that it gets, and their losses."""

    def __init__(self, model):
        super().__init__(model)
        self.seen = []

    def forward(self, features, labels):
        value = super().forward(features, labels)
        ids = [dict(column) for column in features]
        self.seen.append((ids, float(value)))
        return value


def trained(workers, folder, resume=False):
    options = sentence_transformers.SentenceTransformerTrainingArguments(
        output_dir=folder,
        num_train_epochs=2,
        per_device_train_batch_size=6,
        batch_sampler=BatchSamplers.NO_DUPLICATES,
        dataloader_num_workers=workers,
        dataloader_persistent_workers=workers > 0,
        save_strategy="steps",
        save_steps=7,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=5,
    )
    network = model()
    loss = RecordedLoss(network)
    trainer = sentence_transformers.SentenceTransformerTrainer(
        model=network,
        args=options,
        train_dataset={"left": pairs("left", 40, 1), "right": pairs("right", 25, 2)},
        loss=loss,
    )
    checkpoint = f"{folder}/checkpoint-7" if resume else None
    trainer.train(resume_from_checkpoint=checkpoint)
    for index, (ids, value) in enumerate(loss.seen):
        yield f"step {index}", {"features": ids, "loss": value}
    yield "weights", dict(network.state_dict())


def main():
    for workers in (0, 2):
        folder = f"run-{workers}"
        for resume in (False, True):
            for name, value in trained(workers, folder, resume):
                part = ", resumed" if resume else ""
                yield f"{workers} workers{part}, {name}", value
