"""Asks every question, keeps what was found, and makes the tables and plots of it.

    python benchmarks/run.py [--only NAME ...] [--repeats 3] [--quick]

Each contestant of each question is measured ``--repeats`` times, in turn with the
others and in a fresh process every time; medians are compared with the targets.
What is found takes the place of what ``benchmarks/results.json`` had of the same
questions.  From that file all tables and plots are made: ``--pages`` does that alone.
Exits with 1 where something could not be measured or answers differed, and with
``--strict`` where a target is missed.
The peers are in ``pip install 'gristmill[bench]'``.
"""

import argparse
import sys

import pages
import store
from harness import Outcome, Settings, ask, table
from questions import QUESTIONS, question_of


def last_line(outcomes: list[Outcome]) -> str:
    """Returns how many targets there are, and which questions miss one."""
    verdicts = [(o.question.name, v[2]) for o in outcomes for v in o.verdicts()]
    missed = list(dict.fromkeys(name for name, found in verdicts if found != "pass"))
    count = sum(found != "pass" for _, found in verdicts)
    where = f": {', '.join(missed)}" if missed else ""
    return f"{len(verdicts)} targets, {count} missed{where}"


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
    print(last_line(outcomes))
    if any(outcome.failures or outcome.disagreements for outcome in outcomes):
        return 1
    missed = any(v[2] != "pass" for o in outcomes for v in o.verdicts())
    return 1 if missed and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
