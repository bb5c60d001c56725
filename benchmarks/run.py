"""Measures questions, stores the results, and makes all tables and plots from them.

    python benchmarks/run.py [--only NAME ...] [--repeats 3] [--quick]

Each contestant of each question is measured ``--repeats`` times, in turn with the
others and in a fresh process every time; medians are compared with the targets.
Results replace those of the same questions in ``benchmarks/results.json``, from which
all tables and plots are made; ``--pages`` only does the latter. Exits with 1 if
Gristmill could not be measured or answers differed, and with ``--strict`` also if a
target is missed. Peers that failed are named at the end.
The peers are in ``pip install 'gristmill[bench]'``.
"""

import argparse
import sys

import pages
import store
from harness import OURS, Outcome, Settings, measure_contestants, table
from questions import QUESTIONS, question_of


def last_line(outcomes: list[Outcome]) -> str:
    """Returns the number of targets, and the questions that miss one."""
    passes = [
        (outcome.question.name, verdict.is_pass)
        for outcome in outcomes
        for verdict in outcome.verdicts()
    ]
    missed = [name for name, is_pass in passes if not is_pass]
    questions = f": {', '.join(dict.fromkeys(missed))}" if missed else ""
    return f"{len(passes)} targets, {len(missed)} missed{questions}"


def unmeasured(outcomes: list[Outcome]) -> dict[str, str]:
    """Returns the reasons for missing measurements, by question and contestant."""
    return {
        f"{outcome.question.name}: {contestant}": reason
        for outcome in outcomes
        for contestant, reason in outcome.failures.items()
    }


def status(outcomes: list[Outcome], strict: bool) -> int:
    """Returns the exit status, to which failures of peers do not matter."""
    ours_failed = any(name.startswith(OURS) for o in outcomes for name in o.failures)
    answers_differ = any(outcome.disagreements for outcome in outcomes)
    missed = any(not v.is_pass for o in outcomes for v in o.verdicts())
    return 1 if ours_failed or answers_differ or (strict and missed) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=QUESTIONS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="shorter timed parts")
    parser.add_argument("--records", type=int, help="list length of `memory`")
    parser.add_argument("--peers-only", action="store_true", help="skip gristmill")
    parser.add_argument("--pages", action="store_true", help="measure nothing")
    parser.add_argument("--strict", action="store_true", help="1 for missed targets")
    options = parser.parse_args()
    if options.pages:
        pages.write()
        return 0
    settings = Settings(options.quick, options.records)
    about = store.about_now(" ".join(["python benchmarks/run.py", *sys.argv[1:]]))
    print("\n".join(f"- {key}: {value}" for key, value in about.items()), "\n")
    outcomes = []
    for name in options.only:
        skip = "gristmill" if options.peers_only else None
        outcome = measure_contestants(
            question_of(name), settings, options.repeats, skip
        )
        outcome.about = about
        outcomes.append(outcome)
        print(table(outcome), flush=True)
        # Merge after each question, so that an interrupted run keeps its results.
        if not options.peers_only and options.records is None:
            store.merge([outcome])
    pages.write()
    for contestant, reason in unmeasured(outcomes).items():
        print(f"{contestant} was not measured: {reason}")
    print(last_line(outcomes))
    return status(outcomes, options.strict)


if __name__ == "__main__":
    sys.exit(main())
