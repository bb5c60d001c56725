"""Tests that Tokenize returns the ids of each tokenizer library."""

import json
import pickle
import subprocess
import sys

import gigatoken
import numpy as np
import pytest
import sentencepiece
import tiktoken
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill.transforms import Tokenize

CORPUS = [f"Document {i} has {i * i} words, or says so." for i in range(300)]
# Without lone surrogates, which are not valid text for any tokenizer.
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=9)
EOS = "<eos>"


@pytest.fixture(scope="module")
def bpe():
    """Return a byte-pair encoding of 400 tokens, in which <eos> is 1."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = byte_level
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", EOS],
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def path(bpe, tmp_path_factory):
    file = tmp_path_factory.mktemp("bpe") / "tokenizer.json"
    bpe.save(str(file))
    return file


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_prefix=str(folder / "model"),
        vocab_size=350,
        byte_fallback=True,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "model.model"))


@pytest.fixture(scope="module")
def ranks():
    return tiktoken.Encoding(
        "bytes",
        pat_str=r"\w+|\s+|[^\w\s]+",
        mergeable_ranks={bytes([i]): i for i in range(256)} | {b"th": 256, b"en": 257},
        special_tokens={EOS: 258},
    )


def assert_equal(found, expected):
    assert [type(one) for one in found] == [np.ndarray] * len(expected)
    assert [one.dtype for one in found] == [np.int32] * len(expected)
    assert [one.tolist() for one in found] == [list(one) for one in expected]


@given(texts=TEXTS)
@settings(max_examples=60, deadline=None)
def test_ids_match_each_library(bpe, pieces, ranks, texts):
    expected = [bpe.encode(text, add_special_tokens=False).ids for text in texts]
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe)
    assert_equal(Tokenize(bpe).block_map(texts), expected)
    assert_equal(Tokenize(fast).block_map(texts), expected)
    assert_equal(
        Tokenize(pieces).block_map(texts), [pieces.encode(text) for text in texts]
    )
    assert_equal(
        Tokenize(ranks).block_map(texts),
        [ranks.encode_ordinary(text) for text in texts],
    )


@given(texts=TEXTS)
@settings(max_examples=60, deadline=None)
def test_gigatoken_matches_tokenizers(bpe, path, texts):
    theirs = gigatoken.Tokenizer(bpe)
    expected = [bpe.encode(text, add_special_tokens=False).ids for text in texts]
    assert_equal(Tokenize(theirs).block_map(texts), expected)
    opened = Tokenize(path, library="gigatoken")
    assert_equal(pickle.loads(pickle.dumps(opened)).block_map(texts), expected)


def test_special_tokens_in_text_are_encoded_as_documented(bpe, pieces, ranks):
    (ids,) = Tokenize(bpe).block_map([EOS])
    assert ids.tolist() == [1]
    (ids,) = Tokenize(gigatoken.Tokenizer(bpe)).block_map([EOS])
    assert ids.tolist() == [1]
    (ids,) = Tokenize(ranks).block_map([EOS])
    assert ids.tolist() == list(EOS.encode())
    (ids,) = Tokenize(pieces).block_map([EOS])
    assert pieces.eos_id() not in ids


def test_template_of_tokenizer_is_not_applied(bpe):
    wrapped = tokenizers.Tokenizer.from_str(bpe.to_str())
    wrapped.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"$A {EOS}", special_tokens=[(EOS, 1)]
    )
    assert wrapped.encode("has").ids[-1] == 1
    expected = bpe.encode("has").ids
    assert_equal(Tokenize(wrapped).block_map(["has"]), [expected])
    slow_api = transformers.PreTrainedTokenizerFast(tokenizer_object=wrapped)
    assert_equal(Tokenize(slow_api).block_map(["has"]), [expected])


def test_truncation_and_padding_are_not_applied(bpe, tmp_path):
    texts = ["has", "has words, or says so", ""]
    expected = [bpe.encode(text).ids for text in texts]
    limited = tokenizers.Tokenizer.from_str(bpe.to_str())
    limited.enable_truncation(2)
    limited.enable_padding(length=9)
    assert_equal(Tokenize(limited).block_map(texts), expected)
    assert len(limited.encode("has words").ids) == 9
    limited.save(str(tmp_path / "limited.json"))
    assert_equal(Tokenize(tmp_path / "limited.json").block_map(texts), expected)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>")
    step = Tokenize(fast)
    fast(texts, padding=True, truncation=True, max_length=4)
    assert_equal(step.block_map(texts), expected)


class FastTokenizer(transformers.PreTrainedTokenizerFast):
    """A tokenizer of a class outside of transformers."""


class SlowTokenizer(transformers.PreTrainedTokenizer):
    """A tokenizer of code points, without a backend in Rust."""

    vocab_size = 0x110000

    def get_vocab(self):
        return {chr(number): number for number in range(400)}

    def _tokenize(self, text, **options):
        return list(text)

    def _convert_token_to_id(self, token):
        return ord(token)


def test_subclasses_of_transformers_are_recognized(bpe):
    texts = ["has words", ""]
    expected = [bpe.encode(text).ids for text in texts]
    fast = FastTokenizer(tokenizer_object=bpe)
    assert_equal(Tokenize(fast).block_map(texts), expected)
    slow = Tokenize(SlowTokenizer())
    assert_equal(slow.block_map(["ab", "c"]), [[97, 98], [99]])


def test_lone_surrogates_match_tiktoken(ranks):
    text = json.loads('"a\\ud800 then"')
    expected = [ranks.encode_ordinary(text), ranks.encode_ordinary("then")]
    assert_equal(Tokenize(ranks).block_map([text, "then"]), expected)


def test_relative_path_is_the_same_file_in_another_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(path.parent)
    pickled = pickle.dumps(Tokenize(path.name))
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(pickled).block_map([""])[0].size == 0


def test_prefix_and_suffix_surround_each_text():
    step = Tokenize(lambda text: list(text.encode()), prefix=[7, 8], suffix=[9])
    found = step.block_map(["ab", ""])
    assert [ids.tolist() for ids in found] == [[7, 8, 97, 98, 9], [7, 8, 9]]


def code_points(text):
    return [ord(character) for character in text]


@pytest.mark.parametrize(
    ("key", "output_key", "element", "expected"),
    [
        (None, None, "ab", [97, 98]),
        (None, "tokens", "ab", {"tokens": [97, 98]}),
        ("text", None, {"text": "ab", "id": 3}, {"text": [97, 98], "id": 3}),
        ("text", "tokens", {"text": "ab", "id": 3}, {"id": 3, "tokens": [97, 98]}),
        ("text", "text", {"text": "ab"}, {"text": [97, 98]}),
    ],
)
def test_keys_select_the_fields(key, output_key, element, expected):
    (found,) = Tokenize(code_points, key, output_key).block_map([element])
    assert json.loads(json.dumps(found, default=np.ndarray.tolist)) == expected


@pytest.mark.parametrize("kind", ["loader", "chain"])
@pytest.mark.parametrize("workers", [0, 1])
def test_pipelines_encode_as_the_library(bpe, kind, workers):
    step = Tokenize(bpe, suffix=[1], block_size=7)
    if kind == "loader":
        pipeline = gristmill.DataLoader(
            data_source=CORPUS,
            sampler=gristmill.SequentialSampler(len(CORPUS)),
            operations=[step],
            worker_count=workers,
        )
    else:
        options = gristmill.MultiprocessingOptions(num_workers=workers)
        pipeline = gristmill.MapDataset.source(CORPUS).apply(step).to_iter_dataset()
        pipeline = pipeline.mp_prefetch(options) if workers else pipeline
    assert [ids.tolist() for ids in pipeline] == [
        [*encoding.ids, 1] for encoding in bpe.encode_batch(CORPUS)
    ]


def test_bad_text_fails_alone():
    texts = ["a", "b", 3, "c"]
    chain = gristmill.MapDataset.source(texts).apply(Tokenize(code_points))
    found = iter(chain.to_iter_dataset().on_error("skip"))
    assert [ids.tolist() for ids in found] == [[97], [98], [99]]


@pytest.mark.parametrize(
    ("element", "keys", "error", "match"),
    [
        (b"ab", (None, None), TypeError, "needs a str, got bytes"),
        ({"text": "a"}, (None, None), TypeError, "name it by key="),
        ("a", ("text", None), TypeError, "needs a dict, got str"),
        ({"body": "a"}, ("text", None), KeyError, "no field 'text', only 'body'"),
        ({"text": None}, ("text", None), TypeError, "needs a str, got NoneType"),
        ({"text": "a", "tokens": 1}, ("text", "tokens"), ValueError, "'tokens'"),
    ],
)
def test_bad_elements_are_refused(element, keys, error, match):
    with pytest.raises(error, match=match):
        Tokenize(code_points, *keys).block_map([element])


@pytest.mark.parametrize(
    ("result", "dtype", "error", "match"),
    [
        ([1, 300], np.uint8, ValueError, "uint8 for 300"),
        ([-1], np.uint16, ValueError, "uint16 for -1"),
        ([2**40], np.int32, ValueError, f"int32 for {2**40}"),
        (np.array([2**32 - 1], np.uint32), np.int32, ValueError, f"for {2**32 - 1}"),
        ([1.0], np.int32, TypeError, "float64"),
        ([[1]], np.int32, TypeError, r"int64\[1, 1\]"),
        ("ab", np.int32, TypeError, "got str"),
        (None, np.int32, TypeError, "got NoneType"),
    ],
)
def test_bad_results_of_functions_are_refused(result, dtype, error, match):
    step = Tokenize(lambda text: result, dtype=dtype)
    with pytest.raises(error, match=match):
        step.block_map(["a"])


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"tokenizer": 3}, TypeError, "tokenizer must be a function, got int"),
        ({"key": 3}, TypeError, "key must be a str or None, got int"),
        ({"output_key": 3}, TypeError, "output_key must be a str or None, got int"),
        ({"dtype": np.float32}, ValueError, "dtype must be an integer.*float32"),
        ({"prefix": "<s>"}, TypeError, "prefix must be a list of token ids, got str"),
        ({"suffix": [1.5]}, TypeError, "suffix.*got float"),
        ({"suffix": [70_000], "dtype": np.uint16}, ValueError, "uint16 for 70000"),
        ({"block_size": 2.5}, TypeError, "block_size must be an int, got float"),
        ({"block_size": 0}, ValueError, "block_size must be at least 1, got 0"),
        ({"library": "gigatoken"}, ValueError, "library must be None.*'gigatoken'"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, match):
    with pytest.raises(error, match=match):
        Tokenize(**{"tokenizer": code_points, **arguments})


def test_dtype_must_contain_the_vocabulary(bpe, pieces, ranks):
    for tokenizer, last in ((bpe, 399), (pieces, 349), (ranks, 258)):
        with pytest.raises(ValueError, match=rf"0 to {last} .*got uint8"):
            Tokenize(tokenizer, dtype=np.uint8)
    with pytest.raises(ValueError, match="0 to 399 "):
        Tokenize(gigatoken.Tokenizer(bpe), dtype=np.int8)


def test_dtype_must_contain_ids_after_a_gap():
    vocabulary = {"a": 0, "b": 300}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "a"))
    with pytest.raises(ValueError, match="0 to 300 "):
        Tokenize(tokenizer, dtype=np.uint8)
    (ids,) = Tokenize(tokenizer, dtype=np.uint16).block_map(["b"])
    assert (ids.tolist(), ids.dtype) == ([300], np.uint16)


def test_path_must_be_a_readable_file(path, tmp_path):
    with pytest.raises(FileNotFoundError):
        Tokenize(tmp_path / "none.json")
    with pytest.raises(ValueError, match="'tokenizers' or 'gigatoken', got 'other'"):
        Tokenize(path, library="other")


def test_gigatoken_object_names_the_path_for_workers(bpe):
    with pytest.raises(TypeError, match=r"Pass the path of its tokenizer\.json"):
        pickle.dumps(Tokenize(gigatoken.Tokenizer(bpe)))


def test_path_is_opened_again_in_each_process(path):
    pickled = pickle.dumps(Tokenize(path, suffix=[1]))
    assert len(pickled) < 1_000
    code = (
        "import pickle, sys; step = pickle.load(sys.stdin.buffer);"
        " print([ids.tolist() for ids in step.block_map(['has', ''])])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickled, capture_output=True, check=True
    )
    encoded = tokenizers.Tokenizer.from_file(str(path)).encode("has").ids
    assert json.loads(done.stdout) == [[*encoded, 1], [1]]


def test_import_of_gristmill_imports_no_tokenizer():
    code = (
        "import sys, gristmill; gristmill.transforms.Tokenize(len);"
        " print({'tokenizers', 'transformers', 'tiktoken'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"set()\n"
