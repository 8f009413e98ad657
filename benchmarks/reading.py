"""How nasty answers are read: the corpus of `tests/answers`, with the share that is silently wrong.

Printed for each language and parser: answers, those read right, those read with another mark or reason than
meant, those refused although they can be read, those silently wrong. Fails where any is silently wrong: a
value that is not the expected one, without a mark that says so, or a value where there must be none.

    python benchmarks/reading.py [--show]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.answers import cases

VERDICTS = ("right", "otherwise", "refused", "silently wrong")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--show", action="store_true", help="print every answer that is not right")
    show = parser.parse_args().show
    corpus = cases()
    found: dict[tuple[str, str], Counter[str]] = {}
    started = time.process_time()
    for case in corpus:
        reading = case.read()
        verdict = case.verdict(reading)
        for row in ((case.parser, case.language), (case.parser, "all"), ("all", "all")):
            found.setdefault(row, Counter())[verdict] += 1
        if show and verdict != "right":
            print(f"{verdict}: {case.about}: {case.answer[:100]!r}")
            print(f"    {reading.value!r:.200} {reading.repairs} {reading.reason}")
            print(f"    meant: {case.value!r:.200} {case.marks} {case.reason}")
    spent = time.process_time() - started
    print(
        f"{'parser':<10}{'language':<10}" + "".join(f"{one:>16}" for one in ("answers", *VERDICTS))
    )
    for (kind, language), counts in sorted(found.items(), key=lambda one: (one[0][0], one[0][1])):
        figures = (counts.total(), *(counts[one] for one in VERDICTS))
        print(f"{kind:<10}{language:<10}" + "".join(f"{one:>16}" for one in figures))
    whole = found["all", "all"]
    wrong, refused = whole["silently wrong"], whole["refused"]
    languages = len({case.language for case in corpus})
    print(
        f"\n{len(corpus)} answers in {languages} languages, {spent / len(corpus) * 1e6:.0f} µs each"
    )
    print(
        f"silently wrong: {wrong / len(corpus):.1%}   refused although readable: {refused / len(corpus):.1%}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
