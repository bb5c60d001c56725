"""Packs texts and chats with torchtitan's loaders on two ranks, stops, and resumes."""

import itertools
import json
import pathlib
import pickle
import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torchtitan.components.tokenizer import HuggingFaceTokenizer
from torchtitan.hf_datasets.text_datasets import (
    ChatDataLoader,
    HFDataSource,
    HuggingFaceTextDataLoader,
    InterleavedHuggingFaceTextDataLoader,
)

LENGTH = 32
WORDS = "data loader batch worker epoch shuffle record state rank resume".split()
TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{{ '</s>' if message.role == 'assistant' }}{% endfor %}"
)


def write_texts(name, count, seed):
    draws = random.Random(seed)
    folder = pathlib.Path(name)
    folder.mkdir()
    with open(folder / "texts.jsonl", "w") as file:
        for number in range(count):
            text = " ".join(draws.choices(WORDS, k=draws.randrange(3, 60)))
            file.write(json.dumps({"text": f"{number} {text}"}) + "\n")
    return str(folder)


def trained_tokenizer():
    """Return torchtitan's tokenizer, loaded from files like those of a model."""
    folder = pathlib.Path("tokenizer")
    folder.mkdir()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS)], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return HuggingFaceTokenizer(
        HuggingFaceTokenizer.Config(), tokenizer_path=str(folder)
    )


def as_question(sample):
    question, _, answer = sample["text"].partition(" ")
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer},
    ]


def configs(folder, other, workers):
    """Yield the name of a run, a class of loaders, and its config."""
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    options["prefetch_factor"] = 3 if workers else None
    text = HuggingFaceTextDataLoader
    yield "text", text, text.Config(dataset_path=folder, **options)
    mixed = InterleavedHuggingFaceTextDataLoader
    sources = [
        HFDataSource(dataset_path=folder, infinite=False, weight=3),
        HFDataSource(dataset_path=other, infinite=False),
    ]
    yield (
        "interleaved",
        mixed,
        mixed.Config(sources=sources, stopping_strategy="all_exhausted", **options),
    )
    chat = ChatDataLoader
    yield (
        "chat",
        chat,
        chat.Config(
            dataset_path=folder,
            load_dataset_kwargs={"split": "train"},
            sample_processor=as_question,
            infinite=False,
            **options,
        ),
    )


def main():
    torch.manual_seed(0)
    tokenizer = trained_tokenizer()
    folder, other = write_texts("texts", 40, 1), write_texts("others", 15, 2)
    for workers, rank in itertools.product((0, 2), (0, 1)):
        for name, cls, config in configs(folder, other, workers):

            def loader(cls=cls, config=config, rank=rank):
                return cls(
                    config,
                    dp_world_size=2,
                    dp_rank=rank,
                    tokenizer=tokenizer,
                    seq_len=LENGTH,
                    local_batch_size=2,
                )

            title = f"{name}, {workers} workers, rank {rank}"
            first = loader()
            batches = iter(first)
            for batch in itertools.islice(batches, 7):
                yield title, batch
            state = first.state_dict()
            # The states of workers depend on how far they have read.
            if not workers:
                saved = pickle.loads(state[f"dp_rank_{rank}"])
                yield f"{title}: state", saved["dataset_state"]
            for batch in itertools.islice(batches, 15):
                yield f"{title}: rest", batch
            second = loader()
            second.load_state_dict(state)
            for batch in itertools.islice(second, 15):
                yield f"{title}: resumed", batch
