"""Asks every question, keeps what was found, and makes the tables and plots of it.

    python benchmarks/run.py [--only NAME ...] [--repeats 3] [--quick]

Each contestant of each question is measured ``--repeats`` times, in turn with the
others and in a fresh process every time; medians are compared with the targets.
What is found takes the place of what ``benchmarks/results.json`` had of the same
questions.  From that file all tables and plots are made: ``--pages`` does that alone.
Exits with 1 where Gristmill could not be measured or answers differed, and with
``--strict`` where a target is missed.  Peers that could not are named at the end.
The peers are in ``pip install 'gristmill[bench]'``.
"""

import argparse
import sys

import pages
import store
from harness import OURS, Outcome, Settings, ask, table
from questions import QUESTIONS, question_of


def last_line(outcomes: list[Outcome]) -> str:
    """Returns how many targets there are, and which questions miss one."""
    verdicts = [(o.question.name, v[2]) for o in outcomes for v in o.verdicts()]
    missed = list(dict.fromkeys(name for name, found in verdicts if found != "pass"))
    count = sum(found != "pass" for _, found in verdicts)
    where = f": {', '.join(missed)}" if missed else ""
    return f"{len(verdicts)} targets, {count} missed{where}"


def unmeasured(outcomes: list[Outcome]) -> dict[str, str]:
    """Returns why contestants could not be measured, by question and contestant."""
    return {
        f"{outcome.question.name}: {contestant}": reason
        for outcome in outcomes
        for contestant, reason in outcome.failures.items()
    }


def status(outcomes: list[Outcome], strict: bool) -> int:
    """Returns the exit status: a peer's failure is not ours."""
    ours = any(name.startswith(OURS) for o in outcomes for name in o.failures)
    differ = any(outcome.disagreements for outcome in outcomes)
    missed = any(v[2] != "pass" for o in outcomes for v in o.verdicts())
    return 1 if ours or differ or (strict and missed) else 0


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
        outcome = ask(question_of(name), settings, options.repeats, skip)
        outcome.about = about
        outcomes.append(outcome)
        print(table(outcome), flush=True)
        # One after the other: a run that is interrupted has kept what it found.
        if not options.peers_only and options.records is None:
            store.merge([outcome])
    pages.write()
    for contestant, reason in unmeasured(outcomes).items():
        print(f"{contestant} was not measured: {reason}")
    print(last_line(outcomes))
    return status(outcomes, options.strict)


if __name__ == "__main__":
    sys.exit(main())
