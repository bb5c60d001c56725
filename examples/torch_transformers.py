"""Train a tiny language model with the Hugging Face Trainer, on both loaders.

    python examples/torch_transformers.py [--steps N]

The Trainer builds its loaders by a name in torch: one call of
``gristmill.torch.install()`` makes them Gristmill's, and ``uninstall()`` torch's again.
The model is a Llama with a few thousand weights, made on the spot, which reads the
source of Python's standard library byte for byte. Both runs log the same losses.

    pip install 'gristmill[torch]' accelerate transformers
"""

import argparse
import pathlib
import tempfile

import torch
import torch.utils.data
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from gristmill.torch import install, uninstall

WINDOW = 64  # Bytes per sample.
BATCH_SIZE = 16


class Windows(torch.utils.data.Dataset):
    """Windows of a text, in the form of the Trainer's language model samples.

    Args:
        text: Sample i is its bytes from ``i * WINDOW`` to ``(i + 1) * WINDOW``.
    """

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __len__(self):
        return len(self.text) // WINDOW

    def __getitem__(self, index):
        window = self.text[index * WINDOW : (index + 1) * WINDOW]
        tokens = torch.tensor(list(window))
        return {"input_ids": tokens, "labels": tokens}


def make_model():
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=WINDOW,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config)


def train(folder: str, dataset: Windows, steps: int) -> list[float]:
    """Train a new model, and return the losses that the Trainer logs."""
    torch.manual_seed(42)
    arguments = TrainingArguments(
        folder,
        max_steps=steps,
        learning_rate=0.01,
        per_device_train_batch_size=BATCH_SIZE,
        dataloader_num_workers=2,
        logging_steps=steps // 4,
        save_strategy="no",
        disable_tqdm=True,
        report_to=[],
        use_cpu=True,
    )
    trainer = Trainer(make_model(), arguments, train_dataset=dataset)
    loader = trainer.get_train_dataloader().base_dataloader
    print(f"The Trainer takes its batches from {type(loader).__module__}")
    trainer.train()
    return [log["loss"] for log in trainer.state.log_history if "loss" in log]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=80)
    steps = parser.parse_args().steps
    dataset = Windows(pathlib.Path(argparse.__file__).read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        expected = train(folder, dataset, steps)
        install()
        losses = train(folder, dataset, steps)
        uninstall()
    if losses != expected:
        raise SystemExit(f"The losses differ: {losses}, and with torch {expected}")
    print("Both have logged these losses:", *(f"{loss:.3f}" for loss in losses))


if __name__ == "__main__":
    main()
