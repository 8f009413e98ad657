"""`hpcbench judge`: what a judge's verdicts are worth, and a sheet for people to label."""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.cli.output import console, no_scores, print_json, say, table
from hpcbench.errors import UserError, unknown
from hpcbench.experiment.layout import Experiment, find, home
from hpcbench.files.atomic import replacing
from hpcbench.number_format import many, share, value_with_interval
from hpcbench.registry.catalog import user_site

if TYPE_CHECKING:
    from hpcbench.judging.verdict_summary import Vote


def check(arguments: argparse.Namespace) -> int:
    """`hpcbench judge check EXPERIMENT [--labels FILE]`."""
    from hpcbench.judging.labels import keep_labels, read_labels
    from hpcbench.judging.verdict_summary import as_labels, summarise

    if arguments.keep and arguments.labels is None:
        raise UserError("--keep needs labels", remedy="--labels FILE --keep")
    experiment = find(home(user_site()), arguments.experiment)
    experiment.use_packages()
    votes = _judges(experiment)
    labels = None
    if arguments.labels is not None or arguments.judge is not None:
        name = _one_of(experiment, votes, arguments.judge)
    if arguments.labels is not None:
        first = votes[name][0]
        judge = first.run_task.task.judge
        assert judge is not None
        read = read_labels(arguments.labels, as_labels(first.kind), pairs=judge.against is not None)
        labels = {name: read}
        if arguments.keep:
            keep_labels(experiment, name, arguments.labels)
            labels = None
            _score_again(experiment)
    if arguments.judge is not None or arguments.labels is not None:
        votes = {name: votes[name]}
    found = summarise(experiment, votes, labels)
    if arguments.json:
        print_json(found)
    else:
        for base, entry in found.items():
            _print(base, entry)
    return int(any(entry["findings"] for entry in found.values()))


def sheet(arguments: argparse.Namespace) -> int:
    """`hpcbench judge sheet EXPERIMENT --to FILE`."""
    from hpcbench.data.datasets import open_dataset, samples, total
    from hpcbench.judging.verdict_summary import answers_of

    if arguments.to.exists():
        what = f"{arguments.to} exists, and may hold labels"
        raise UserError(what, remedy="name another file with --to")
    experiment = find(home(user_site()), arguments.experiment)
    experiment.use_packages()
    votes = _judges(experiment)
    run_task = votes[_one_of(experiment, votes, arguments.judge)][0].run_task
    judge = run_task.task.judge
    assert judge is not None
    answers = {
        sample: texts
        for sample, texts in answers_of(experiment, run_task).items()
        if all(text is not None for text in texts)
    }
    if not answers:
        raise no_scores(experiment)
    chosen = random.Random(experiment.resolved.plan.seed).sample(
        sorted(answers), min(arguments.size, len(answers))
    )
    iterator = open_dataset(run_task.dataset, experiment.cache_dir)
    places = experiment.chosen(run_task.name)
    wanted = set(chosen)
    shown = {
        one.id: one
        for one in samples(iterator, places, 0, total(places), images=False)
        if one.id in wanted
    }
    heads = ["sample", "document", "question", "reference", "answer"]
    heads += ["other"] if judge.against is not None else []
    with replacing(arguments.to) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*heads, "label"])
        for sample_id in chosen:
            sample = shown[sample_id]
            references = " | ".join(map(str, sample.references))
            question = str(sample.fields.get("question", ""))
            writer.writerow(
                [sample_id, sample.document, question, references, *answers[sample_id], ""]
            )
    say(
        f"{arguments.to}: {many(len(chosen), 'answer')} of {len(answers)}, a random choice; fill in the "
        f"column `label`, then: hpcbench judge check {experiment.id} --labels {arguments.to} --keep"
    )
    return 0


def _judges(experiment: Experiment) -> dict[str, Sequence[Vote]]:
    """Judge → its repeats.

    Raises:
        UserError: the experiment has no judge.
        RunFailed: its answers are not scored yet.
    """
    from hpcbench.evaluation.plan_metrics import load_metrics
    from hpcbench.evaluation.stage import votes_by_judge
    from hpcbench.experiment.view.scores import ScoresFiles

    judges = [one for one in experiment.resolved.run_tasks if one.task.judge is not None]
    if not judges:
        what = f"{experiment.id} has no judge"
        raise UserError(
            what, remedy="add a run task with `judge: {of: RUN_TASK}`, see docs/judging.md"
        )
    scored = [
        (one, load_metrics(one), ScoresFiles(experiment.scores_dir, one.name))
        for one in judges
        if experiment.scores_file(one.name).exists()
    ]
    if not scored:
        raise no_scores(experiment)
    return {**votes_by_judge(scored)}


def _one_of(experiment: Experiment, votes: Mapping[str, Any], name: str | None) -> str:
    """The judge of that name, or the only one.

    Raises:
        UserError: there is none of that name, or several and no name.
    """
    if name is None:
        if len(votes) == 1:
            return next(iter(votes))
        what = f"{experiment.id} has {many(len(votes), 'judge')}: {', '.join(votes)}"
        raise UserError(what, remedy="name one with --judge")
    if name not in votes:
        raise UserError(unknown("judge", name, votes, of=experiment.id), file="--judge")
    return name


def _score_again(experiment: Experiment) -> None:
    """Write tables and reports again, now with the labels; no score changes, so that takes no time."""
    from hpcbench.evaluation.stage import evaluate
    from hpcbench.finalise import scored_again
    from hpcbench.reporting.writing import FAILED, report

    evaluate(experiment, say)
    scored_again(experiment)
    if not any(experiment.report_dir.glob("report.*")):
        return
    report(experiment)
    if (failed := experiment.report_dir / FAILED).exists():
        say(f"a report could not be written again, see {failed}")
    say(
        "the plan's reports are written again; of other formats: "
        f"hpcbench report {experiment.id} --format NAME"
    )


def _print(base: str, entry: Mapping[str, Any]) -> None:
    out = console()
    against = f" against {entry['against']}" if entry["against"] else ""
    out.print(
        f"{base}: {entry['model']} judges {entry['of']}{against} by rubric {entry['rubric']}",
        soft_wrap=True, highlight=False, markup=False,
    )  # fmt: skip
    shown = table("figure", "value", "note", right=("value",))
    for what, value, note in lines_of(entry):
        shown.add_row(what, value, note)
    out.print(shown)
    for finding in entry["findings"]:
        out.print(f"! {finding}", soft_wrap=True, highlight=False, markup=False)
    out.print()


def lines_of(entry: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Figure, value and note for people."""
    labels = entry.get("labels")
    yield "samples judged", f"{entry['judged']} of {entry['samples']}", ""
    if entry["without_answer"]:
        yield "without an answer to judge", str(entry["without_answer"]), "in no value"
    yield "unreadable verdicts", str(entry["unreadable"]), "in no value"
    if entry["unanimous"] is not None:
        yield "votes that agree", share(entry["unanimous"]), f"of {entry['votes']} votes a sample"
    if labels is not None:
        yield "human labels used", f"{labels['used']} of {labels['given']}", ""
    names = {
        "naive": ("naive mean", entry["state"] + (f": {entry['why']}" if entry["why"] else "")),
        "powered": ("corrected, prediction-powered", "needs a random choice of labels"),
        "corrected": ("corrected, by sensitivity and specificity", ""),
        "sensitivity": ("sensitivity", "right answers that it calls right"),
        "specificity": ("specificity", "wrong answers that it calls wrong"),
        "bias": ("bias", "mean verdict minus mean label"),
        "order": ("prefers the first of a pair", "0.5: no preference"),
        "longer": ("prefers the longer of a pair", ""),
        "length": ("likes long answers more than people", "0: no preference"),
        "family": ("likes its own family more than people", "0: no preference"),
    }
    for key, (name, note) in names.items():
        if (one := entry.get(key)) is not None:
            why = one["method"] if one["low"] is None else ""
            yield name, value_with_interval(one["value"], one["low"], one["high"]), why or note
