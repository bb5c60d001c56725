"""A small tokenizer, and documents for it."""

import json

import tokenizers

EOS = "<eos>"
WORDS = "the quick brown fox jumps over a lazy dog, naïvely: 12 ½ times".split()


def write_tokenizer(path, vocabulary=300):
    """Write a byte-pair encoding, in which <eos> is 1, and return the path."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = byte_level
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<pad>", EOS],
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 9, trainer)
    tokenizer.save(str(path))
    return path


def documents(count):
    """Return texts of different lengths."""
    return [" ".join((WORDS * 9)[i % 7 : i % 7 + i % 50 + 1]) for i in range(count)]


def write_lines(path, texts):
    """Write JSON lines with the texts, and return the path."""
    lines = [json.dumps({"id": i, "text": text}) for i, text in enumerate(texts)]
    path.write_text("\n".join(lines) + "\n")
    return path


def encode(tokenizer, texts, suffix=()):
    """Return the ids of each text, by the tokenizers library."""
    library = tokenizers.Tokenizer.from_file(str(tokenizer))
    return [
        [*library.encode(text, add_special_tokens=False).ids, *suffix] for text in texts
    ]
