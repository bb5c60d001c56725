"""Comparisons with other loaders: README's table, and the pages of `docs/peers`."""

import dataclasses
import pathlib

from harness import OURS, AtLeast, Outcome, format_figure

# Name of each loader to the prefixes of its contestants' names.
LOADERS = {
    "Grain": ("grain", "wheel"),
    "torchdata": ("torchdata",),
    "torch": ("torch",),
    "SPDL": ("spdl",),
    "DALI": ("dali",),
    "Hugging Face": ("hugging face", "iter", "indexed"),
    "webdataset": ("webdataset",),
    "Ray Data": ("Ray Data",),
    "tf.data": ("tf.data", "tensorflow"),
    "by hand": ("by hand", "bare"),
}
PAGES = {
    "dali": ("DALI",),
    "grain": ("Grain",),
    "hugging-face": ("Hugging Face",),
    "ray-data": ("Ray Data",),
    "spdl": ("SPDL",),
    "tf-data": ("tf.data",),
    "torch": ("torch", "torchdata"),
    "webdataset": ("webdataset",),
}
FOLDER = pathlib.Path(__file__).parent.parent / "docs" / "peers"


def loader_of(contestant: str) -> str | None:
    """Returns the name of a contestant's loader; None for a limit or for ours."""
    for loader, begins in LOADERS.items():
        if contestant.startswith(begins):
            return loader
    return None


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table that compares loaders.

    Args:
        label: The subject in a few words.
        question: The name of the question.
        ours: Our contestant. Text after its first word, like " 16w", must also end the
            names of the compared contestants.
    """

    label: str
    question: str
    ours: str = OURS

    def ratios(self, outcome: Outcome) -> dict[str, float]:
        """Returns the ratio of each loader's best time to ours."""
        end = self.ours.removeprefix(OURS)
        best: dict[str, float] = {}
        for name, value in outcome.medians.items():
            loader = loader_of(name)
            if loader is not None and name.endswith(end):
                best[loader] = min(value, best.get(loader, value))
        ours = outcome.medians[self.ours]
        return {loader: float(f"{best[loader] / ours:.3g}") for loader in best}

    def __str__(self) -> str:
        return f"{self.label} ({self.question})"


COMPARISONS = (
    Row("objects in memory", "getitem"),
    Row("a Python map, 2 workers", "map_workers"),
    Row("19 MB of images a batch, 2 workers", "images"),
    Row("first batch, 2 workers", "first_batch", f"{OURS} 2w"),
    Row("records of 1 KiB, shuffled", "records_tokens"),
    Row("records of 100 KB, 2 workers", "records_large"),
    Row("JPEG files, 2 workers", "jpeg"),
    Row("samples of tar files", "tar"),
    Row("Parquet columns", "parquet_columns"),
    Row("packed text, 2 workers", "text_pack", f"{OURS}, blocks"),
    Row("a chain of datasets", "dataset_map"),
    Row("packing by first fit", "pack_first_fit"),
    Row("torch: dicts of tensors", "torch_dict"),
    Row("torch: images, 2 workers", "torch_images"),
    Row("records of 1 KiB from a cluster", "ray_records"),
    Row("import", "import"),
)


# The questions whose rows the README shows.
README_QUESTIONS = ("map_workers", "records_tokens", "torch_images", "first_batch")


def front_table(
    outcomes: dict[str, Outcome], questions: tuple[str, ...] | None = None
) -> str:
    """Return the table that compares loaders as markdown.

    Args:
        outcomes: The outcomes by question.
        questions: The questions to show; None for all.
    """
    lines = [
        "| | Gristmill | time of others, relative to Gristmill |",
        "| --- | --- | --- |",
    ]
    for row in COMPARISONS:
        if questions is not None and row.question not in questions:
            continue
        if row.question not in outcomes:
            continue
        outcome = outcomes[row.question]
        ours = f"{format_figure(outcome.medians[row.ours])} {outcome.question.unit}"
        ratios = row.ratios(outcome)
        others = ", ".join(f"{name} {format_figure(ratios[name])}x" for name in ratios)
        lines.append(f"| {row.label} | {ours} | {others} |")
    return "\n".join(lines) + "\n"


def _by_targets(page: str, outcome: Outcome) -> list[tuple[str, list[str]]]:
    """Returns our contestants and the page's, as compared by the targets."""
    return [
        (target.ours, [name for name in target.peers if loader_of(name) in PAGES[page]])
        for target in outcome.question.targets
        if isinstance(target, AtLeast)
    ]


def _by_names(page: str, outcome: Outcome) -> list[tuple[str, list[str]]]:
    """Returns the same by suffix: "gristmill 2w" meets all names that end in " 2w"."""
    pairs: dict[str, list[str]] = {}
    all_ours = [name for name in outcome.medians if name.startswith(OURS)]
    for name in outcome.medians:
        fitting = [ours for ours in all_ours if name.endswith(ours.removeprefix(OURS))]
        if loader_of(name) in PAGES[page] and fitting:
            pairs.setdefault(max(fitting, key=len), []).append(name)
    return list(pairs.items())


def compared_with(page: str, outcomes: dict[str, Outcome]) -> list[tuple[str, ...]]:
    """Returns rows of question, our contestant, the page's contestant and the ratio.

    Of several contestants the fastest counts. Contestants without a target get a row,
    too, if they are faster than those with a target.
    """
    rows: list[tuple[str, ...]] = []
    for outcome in outcomes.values():
        medians = outcome.medians
        if outcome.question.unit.startswith("%"):  # Gristmill alone
            continue
        # The time of the fastest peer so far, by our contestant.
        fastest: dict[str, float] = {}
        for ours, peers in _by_targets(page, outcome) + _by_names(page, outcome):
            measured = [name for name in peers if name in medians]
            if not measured or medians.get(ours, 0.0) <= 0.0:
                continue
            best = min(measured, key=medians.__getitem__)
            if ours not in fastest or medians[best] < fastest[ours]:
                fastest[ours] = medians[best]
                ratio = format_figure(medians[best] / medians[ours])
                rows.append((outcome.question.text, ours, best, ratio))
    return rows


def section_of(page: str, outcomes: dict[str, Outcome]) -> str:
    """Returns the markdown of the comparisons with a page's loader."""
    lines = [
        "| question | of Gristmill | compared with | times as fast |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| {' | '.join(row)} |" for row in compared_with(page, outcomes)]
    return "\n".join(lines) + "\n"
