"""Builds data sets of megatron.core, and compares their samples with ours."""

import logging
import warnings

import numpy as np

from support import extras

EOD = 0
PAD = 9


class Tokenizer:
    """The tokenizer's attributes that a GPTDatasetConfig reads."""

    vocab_size = 100
    eod = EOD
    pad = PAD

    def __init__(self):
        self.unique_identifiers = {}


def build_theirs(prefixes, weights, num_samples, split, **config):
    """Return the train, valid and test sets that Megatron builds."""
    gpt = extras.megatron("datasets.gpt_dataset")
    builder = extras.megatron("datasets.blended_megatron_dataset_builder")
    logging.getLogger("megatron").setLevel(logging.WARNING)
    defaults = dict.fromkeys(
        ("reset_position_ids", "reset_attention_mask", "eod_mask_loss"), False
    )
    defaults["create_attention_mask"] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        full = gpt.GPTDatasetConfig(
            blend=(prefixes, weights),
            split=split,
            tokenizer=Tokenizer(),
            **defaults | config,
        )
        return builder.BlendedMegatronDatasetBuilder(
            gpt.GPTDataset, [num_samples] * 3, lambda: True, full
        ).build()


def assert_same(ours, theirs):
    """Check that two data sets have the same arrays."""
    assert len(ours) == len(theirs)
    parts = getattr(theirs, "datasets", [theirs])
    for key, sample in enumerate(ours):
        # Megatron changes its cached loss mask if the first sample has padding.
        for part in parts:
            part.masks_and_position_ids_are_cached = False
        expected = theirs[key]
        assert list(sample) == list(expected)
        for name, array in sample.items():
            found = np.asarray(expected[name])
            assert array.dtype == found.dtype, name
            np.testing.assert_array_equal(array, found, name)
