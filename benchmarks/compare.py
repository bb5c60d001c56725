"""Measures a commit and this checkout in turn, and reports slowdowns.

    python benchmarks/compare.py REF [--only NAME ...] [--pairs 7]

Both are built as pip builds them, in a temporary folder; this checkout with all tracked
files in their current state. The questions are this checkout's, and only Gristmill's
contestants run. Two consecutive runs make a pair. Every other pair runs in reverse,
because a machine's speed changes over time. A contestant is slower if the median ratio
of its pairs is above 1.1, and at most one pair in five has a ratio below 1. Exits with
1 if one is slower.
"""

import argparse
import dataclasses
import pathlib
import statistics
import subprocess
import sys
import tempfile

from harness import OURS, Question, Settings, measure
from questions import QUESTIONS, question_of

ROOT = pathlib.Path(__file__).parent.parent
# Questions that take seconds and cover most of the code.
DEFAULT_QUESTIONS = (
    "array",
    "map",
    "map_workers",
    "images",
    "indices",
    "random_map",
    "receive",
    "records_tokens",
    "dataset_map",
    "dataset_default",
    "pack_first_fit",
    "torch_tensor_dataset",
    "torch_small",
)
# The least median ratio of a slowdown.
MIN_LOSS = 1.1
# In a slowdown, at most one pair in this many is faster now.
PAIRS_PER_EXCEPTION = 5


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of the pairs of one contestant; lower is better.

    Args:
        name: Question and contestant.
        pairs: The figures of each pair, of the commit and of this checkout.
        failure: The reason why pairs are missing.
    """

    name: str
    pairs: tuple[tuple[float, float], ...]
    failure: str = ""

    @property
    def ratios(self) -> list[float]:
        """Return the ratio of now to before for each pair."""
        return [now / before for before, now in self.pairs]

    @property
    def is_loss(self) -> bool:
        """Return whether this checkout is slower; see the module docstring."""
        ratios = self.ratios
        if not ratios or statistics.median(ratios) <= MIN_LOSS:
            return False
        return sum(ratio < 1 for ratio in ratios) <= len(ratios) // PAIRS_PER_EXCEPTION

    def __str__(self) -> str:
        if not self.pairs:
            return f"| {self.name} | - | - | - | not measured: {self.failure} |"
        before, now = map(statistics.median, zip(*self.pairs, strict=True))
        ratios = self.ratios
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        verdict = "SLOWER" if self.is_loss else "ok"
        ratio = f"{statistics.median(ratios):.2f} ({spread})"
        return f"| {self.name} | {before:.4g} | {now:.4g} | {ratio} | {verdict} |"


def compare(
    question: Question,
    contestant: str,
    trees: tuple[pathlib.Path, pathlib.Path],
    settings: Settings,
    pairs: int,
) -> Comparison:
    """Measures one contestant with the packages in two folders, in turn.

    Args:
        question: The question.
        contestant: The name of one of its contestants.
        trees: The folders of the packages, of the commit and of this checkout.
        settings: How long to measure.
        pairs: The number of pairs.
    """
    name = f"{question.name}: {contestant}"
    figures = []
    for number in range(pairs):
        values = {}
        for tree in trees if number % 2 == 0 else reversed(trees):
            try:
                values[tree] = measure(question, contestant, settings, tree).value
            except RuntimeError as error:
                return Comparison(name, (), f"{tree.name}: {error}")
        figures.append((values[trees[0]], values[trees[1]]))
    return Comparison(name, tuple(figures))


def git(*arguments: str) -> str:
    """Runs git in the checkout and returns its output."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def build(commit: str, target: pathlib.Path) -> None:
    """Builds a commit's package into a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        archive = pathlib.Path(scratch, "sources.tar")
        git("archive", "--output", str(archive), commit)
        sources = pathlib.Path(scratch, "sources")
        sources.mkdir()
        subprocess.run(["tar", "xf", str(archive), "-C", str(sources)], check=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
        pip += ["--quiet", "--no-deps", "--target", str(target), str(sources)]
        subprocess.run(pip, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ref", help="a commit, a branch or a tag")
    parser.add_argument(
        "--only", nargs="+", choices=QUESTIONS, default=DEFAULT_QUESTIONS
    )
    parser.add_argument("--pairs", type=int, default=7)
    options = parser.parse_args()
    before = git("rev-parse", "--verify", f"{options.ref}^{{commit}}")
    # Uncommitted changes, as a commit that is on no branch.
    now = git("stash", "create") or git("rev-parse", "HEAD")
    slower = False
    with tempfile.TemporaryDirectory() as scratch:
        trees = pathlib.Path(scratch, "before"), pathlib.Path(scratch, "now")
        for commit, tree in zip((before, now), trees, strict=True):
            print(f"Building {commit[:12]} ({tree.name})", flush=True)
            build(commit, tree)
        print(f"\n| contestant | {before[:12]} | {now[:12]} | ratio | verdict |")
        print("|---|---|---|---|---|", flush=True)
        for name in options.only:
            question = question_of(name)
            for contestant in question.contestants:
                if contestant.partition(" ")[0].rstrip(",") != OURS:
                    continue
                settings = Settings(quick=True)
                result = compare(question, contestant, trees, settings, options.pairs)
                print(result, flush=True)
                slower |= result.is_loss
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
