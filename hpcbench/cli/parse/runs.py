"""Verbs that start, follow and end experiments."""

from __future__ import annotations

from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    MetricOption,
    Verb,
    with_json,
    with_registry,
    with_settings,
    with_site,
    words,
)


def _new(verb: Verb) -> None:
    new = verb(
        "new", "new:new", "write a first plan by a few questions, and check it",
        "hpcbench new; without a terminal: hpcbench new --task vqa --dataset demo_vqa --model tiny-vlm",
    )  # fmt: skip
    new.add_argument("name", nargs="?", metavar="NAME", help="of the plan; written to NAME.yaml")
    new.add_argument("--task", dest="ml_task", metavar="NAME", help="what the model is to do")
    new.add_argument("--dataset", metavar="NAME", help="of datasets/, one that fits the task")
    new.add_argument(
        "--model", metavar="NAME", help="of models/; one that does not fit is warned of"
    )
    new.add_argument(
        "--all-models",
        action="store_true",
        help="also offer models that the site's GPUs do not hold",
    )
    new.add_argument(
        "--prompt", metavar="NAME", help="of prompts/ (the dataset's, else the task's)"
    )
    new.add_argument(
        "--metrics", type=words, metavar="A,B", help="of the task (its default metrics)"
    )
    new.add_argument(
        "--limit", type=int, metavar="N", help="at most so many samples, 0: all (50, a first look)"
    )
    new.add_argument("--out", type=Path, metavar="FILE", help="the plan's file (NAME.yaml)")
    new.add_argument("--dry-run", action="store_true", help="print the plan; write nothing")
    with_registry(new)


def add(verb: Verb) -> None:
    """Verbs of one experiment's life."""
    _new(verb)
    submit = verb(
        "submit", "submit:submit", "run an experiment plan", "hpcbench submit plan.yaml --wait"
    )
    submit.add_argument("plan", type=Path, nargs="?", help="the plan's YAML file")
    with_registry(submit)
    with_settings(submit)
    submit.add_argument(
        "--dry-run",
        action="store_true",
        help="print jobs, shards, command lines, what is to be fetched and what fits; touch nothing",
    )
    submit.add_argument(
        "--estimate", action="store_true",
        help="print GPU-hours, time, disk, files, jobs and which partition fits; touch nothing",
    )  # fmt: skip
    submit.add_argument(
        "--limit", type=int, metavar="N", help="ask at most N samples of every run task"
    )
    submit.add_argument(
        "--pilot", type=int, metavar="N",
        help="end a run task if none of the first N samples that a worker asks of it has a readable answer "
        "(20); 0: never",
    )  # fmt: skip
    submit.add_argument(
        "--max-gpu-hours", type=float, metavar="H", help="submit nothing that could exceed them"
    )
    submit.add_argument(
        "--if-idle",
        action="store_true",
        help="for cron: submit nothing while the last one of this plan runs; tell how it ended once it has",
    )
    submit.add_argument(
        "--snapshot-env",
        action="store_true",
        help="run jobs from a copy of this Python's environment, which no later pip or git changes",
    )
    submit.add_argument("--wait", action="store_true", help="follow it to its end and print scores")
    with_json(submit)
    with_site(submit)

    rerun = verb(
        "rerun", "submit:rerun", "run an experiment's plan once more, as it was then",
        "hpcbench rerun 20261120-1432-demo --wait; a copy of its folder, with the data elsewhere: "
        "hpcbench rerun ./20261120-1432-demo --source receipts=/data/receipts",
    )  # fmt: skip
    rerun.description = (
        "Run an experiment's plan once more with the documents, overlays and settings of then, which the "
        "experiment holds; no registry is asked."
    )
    rerun.add_argument("experiment", help=EXPERIMENT)
    rerun.add_argument(
        "--source", action="append", default=[], metavar="NAME=PLACE",
        help="where this dataset or model is now, a folder or a URL; may be repeated",
    )  # fmt: skip
    rerun.add_argument(
        "--dry-run", action="store_true", help="print jobs, shards and sbatch text; touch nothing"
    )
    rerun.add_argument("--wait", action="store_true", help="follow it to its end and print scores")
    with_json(rerun)
    with_site(rerun)

    resume = verb(
        "resume", "submit:resume", "go on with an experiment", "hpcbench resume 20261120-1432-demo"
    )
    resume.add_argument("experiment", help=EXPERIMENT)
    resume.add_argument(
        "run_tasks", nargs="*", default=[], help="only these of its run tasks, or beginnings"
    )
    resume.add_argument(
        "--pilot", type=int, metavar="N",
        help="as of `submit`; 0: go on with a run task although its pilot failed",
    )  # fmt: skip
    resume.add_argument(
        "--force", action="store_true",
        help="its run by the local executor on another host is gone: that machine was switched off",
    )  # fmt: skip
    resume.add_argument("--wait", action="store_true", help="follow it to its end and print scores")
    with_json(resume)
    with_site(resume)

    pause = verb(
        "pause", "submit:pause", "let an experiment rest, or some of its run tasks",
        "hpcbench pause @last invoices",
    )  # fmt: skip
    pause.add_argument("experiment", help=EXPERIMENT)
    pause.add_argument(
        "run_tasks", nargs="*", default=[], help="only these of its run tasks, or beginnings"
    )
    with_site(pause)

    cancel = verb(
        "cancel",
        "submit:cancel",
        "end an experiment, or some of its run tasks",
        "hpcbench cancel @last",
    )
    cancel.add_argument("experiment", help=EXPERIMENT)
    cancel.add_argument(
        "run_tasks", nargs="*", default=[], help="only these of its run tasks, or beginnings"
    )
    with_site(cancel)

    listing = verb("list", "show:list_experiments", "list experiments", "hpcbench list")
    with_json(listing)
    with_site(listing)

    status = verb("status", "show:status", "show how far an experiment is", "hpcbench status @last")
    status.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    with_json(status)
    with_site(status)

    watch = verb("watch", "show:watch", "follow an experiment to its end", "hpcbench watch @last")
    watch.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    with_site(watch)

    _follow(verb)

    _report(verb)
    _notify(verb)
    _score(verb)
    _compare(verb)
    _ab(verb)
    _power(verb)
    _usage(verb)
    _gc(verb)
    _load(verb)
    _remote(verb)


def _report(verb: Verb) -> None:
    """The verb that shows scores and writes reports."""
    report = verb(
        "report", "report:report", "print scores and where the report is, or write it anew",
        "hpcbench report; as a PDF: hpcbench report @last --format pdf; for a paper: hpcbench report @last "
        "--format latex --to paper/; on the screen: hpcbench report @last --format markdown --to -",
    )  # fmt: skip
    report.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    report.add_argument(
        "--format", type=words, action="extend", default=[], metavar="NAMES",
        help="write these anew: html, markdown, json, latex, pdf, or documents of reports/ by name",
    )  # fmt: skip
    report.add_argument(
        "--to", type=Path, metavar="DIR",
        help="folder to write to (the experiment's report/; with --site HPCBENCH_HOME/remote); "
        "- prints one report of text",
    )  # fmt: skip
    report.add_argument("--open", action="store_true", help="show it in this machine's browser")
    with_registry(report)
    with_json(report)
    with_site(report)


def _remote(verb: Verb) -> None:
    """The verb that answers `--site` of a laptop."""
    remote = verb(
        "remote", "remote:answer", "answer the `--site` of a laptop, over standard input and output",
        "hpcbench remote hello <<< '{}'",
    )  # fmt: skip
    remote.add_argument(
        "what", choices=["hello", "receive", "send", "submit"], help="what it asks for"
    )


def _notify(verb: Verb) -> None:
    """The verb that tells what is owed."""
    notify = verb(
        "notify", "notify:notify", "tell now what nobody could be told yet, or try notifications",
        "hpcbench notify @last; before anything runs: hpcbench notify plan.yaml --test",
    )  # fmt: skip
    notify.add_argument("target", nargs="?", default="@last", help=f"{EXPERIMENT}; or a plan")
    notify.add_argument(
        "--test",
        action="store_true",
        help="send each of its notifications a test, whatever is owed",
    )
    with_registry(notify)
    with_settings(notify)
    with_json(notify)
    with_site(notify)


def _score(verb: Verb) -> None:
    """The verb that makes tables of scores, and scores anew."""
    score = verb(
        "score", "score:score", "tables of scores by any groups, and scores anew without asking a model",
        "hpcbench score @last --by doc_type; by other metrics: hpcbench score @last --metrics anls,cer "
        "--metric-option anls.tau=0.3 --save loose; a file: hpcbench score answers.csv --ml-task vqa "
        "--dataset demo-receipts",
    )  # fmt: skip
    score.add_argument("target", help=f"{EXPERIMENT}; or a file of answers, JSONL or CSV")
    score.add_argument(
        "--run-task", action="append", default=[], metavar="NAME",
        help="only this of its run tasks; may be repeated",
    )  # fmt: skip
    score.add_argument(
        "--metrics", type=words, default=[], metavar="NAME,NAME,…",
        help="these instead of the plan's; what they say is printed, and kept with --save",
    )  # fmt: skip
    score.add_argument(
        "--metric-option", dest="options", action=MetricOption, default={},
        metavar="METRIC.OPTION=VALUE", help="option of a metric; may be repeated",
    )  # fmt: skip
    score.add_argument(
        "--on-invalid", choices=["exclude", "zero"], help="count answers without a value so"
    )
    score.add_argument(
        "--by", type=words, default=[], metavar="COLUMN,COLUMN,…",
        help="a row a group: field, model, prompt, outcome, document …, or metadata such as doc_type",
    )  # fmt: skip
    score.add_argument(
        "--pivot",
        metavar="COLUMN",
        help="this one of --by goes across: --by doc_type --pivot model",
    )
    score.add_argument("--weight", metavar="COLUMN", help="metadata that samples weigh")
    score.add_argument("--macro", action="store_true", help="the mean over the groups of --by")
    score.add_argument(
        "--save", metavar="NAME", help="keep scores and metrics.json in its folder rescored/NAME"
    )
    score.add_argument(
        "--anew", action="store_true", help="score again what is scored already, too"
    )
    score.add_argument("--dry-run", action="store_true", help="say what would be scored anew")
    score.add_argument("--dataset", help="of a file: the dataset's document, its file, or a folder")
    score.add_argument("--ml-task", metavar="NAME", help="of a file: how its answers are read")
    score.add_argument("--split", help="of a file: only samples of this split")
    score.add_argument(
        "--annotations", default="annotations.jsonl", help="table inside a folder (%(default)s)"
    )
    with_registry(score)
    with_json(score)


def _compare(verb: Verb) -> None:
    """Two runs, or several."""
    compare = verb(
        "compare", "compare:compare", "hold candidates against a baseline, sample by sample",
        "hpcbench compare 20261120-0312-demo @last --margin anls=0.01; several candidates, as a page: "
        "hpcbench compare main try-a try-b --report compared.html; two run tasks of one experiment: "
        "hpcbench compare @last @last --run-task vqa-small=vqa-large",
    )  # fmt: skip
    compare.add_argument("baseline", help=EXPERIMENT)
    compare.add_argument(
        "candidates", nargs="+", metavar="candidate", help="the same of what is compared with it"
    )
    compare.add_argument(
        "--run-task", action="append", default=[], metavar="ONE[=OTHER]",
        help="run tasks to pair; may be repeated (those of one name, else of one question)",
    )  # fmt: skip
    compare.add_argument(
        "--metric", action="append", default=[], help="only this one; may be repeated"
    )
    compare.add_argument(
        "--margin", action="append", default=[], metavar="[METRIC=]NUMBER",
        help="difference that does not matter; without one nothing is found equivalent",
    )  # fmt: skip
    compare.add_argument(
        "--counting", choices=["zero", "exclude"], default="zero",
        help="what an answer without a value counts, in both: the worst, or its sample nothing (%(default)s)",
    )  # fmt: skip
    compare.add_argument(
        "--common", action="store_true",
        help="where they did not ask the same samples: compare those that both have asked",
    )  # fmt: skip
    compare.add_argument(
        "--flips",
        type=int,
        metavar="N",
        help="show N samples lost and N won of each run task (3; with --json and --flips-csv all)",
    )
    compare.add_argument(
        "--flips-csv", type=Path, metavar="FILE", help="write all of them, of every metric"
    )
    compare.add_argument(
        "--sample", metavar="ID", help="show what each run made of this sample, and nothing else"
    )
    compare.add_argument("--report", type=Path, metavar="FILE", help="write a page, .md or .html")
    with_json(compare)


def _ab(verb: Verb) -> None:
    """Two arms of one plan."""
    ab = verb(
        "ab", "ab:ab", "run two arms of a plan in turns on the same nodes, and compare them",
        "hpcbench ab plan.yaml --a model.engine_options.max_num_seqs=8 --b "
        "model.engine_options.max_num_seqs=32 --limit 200 --metric answers_per_s --wait; the table again: "
        "hpcbench ab @last",
    )  # fmt: skip
    ab.add_argument(
        "what", metavar="plan|experiment", help=f"the plan's YAML file, or {EXPERIMENT}"
    )
    for letter in "ab":
        ab.add_argument(
            f"--{letter}", action="append", default=[], metavar="PATH=VALUE",
            help=f"setting of arm {letter}: as --set, or short for all run tasks: model.dtype=float16, "
            "generation.temperature=0; may be repeated",
        )  # fmt: skip
    ab.add_argument("--limit", type=int, metavar="N", help="only the first N samples of a run task")
    ab.add_argument(
        "--metric", action="append", default=[], metavar="NAME",
        help="what decides: a metric, or answers_per_s, tokens_per_s, ttft_ms, tpot_ms, e2e_ms; may be "
        "repeated (the first metric of each run task)",
    )  # fmt: skip
    ab.add_argument(
        "--margin", action="append", default=[], metavar="[METRIC=]NUMBER",
        help="difference that does not matter; of a speed a share, 0.02 for 2 %%",
    )  # fmt: skip
    ab.add_argument(
        "--alpha", type=float, default=0.05,
        help="risk of any false alarm, over all looks and all that decides (%(default)s)",
    )  # fmt: skip
    ab.add_argument(
        "--no-early-stop", action="store_true", help="ask all samples, and look once at the end"
    )
    ab.add_argument(
        "--dry-run", action="store_true", help="print blocks, loads and jobs; touch nothing"
    )
    ab.add_argument("--wait", action="store_true", help="follow it to its end and print the table")
    with_registry(ab)
    with_settings(ab)
    with_json(ab)


def _power(verb: Verb) -> None:
    """The verb that tells how many documents a comparison takes."""
    power = verb(
        "power", "power:power", "tell how many documents a comparison of two runs needs",
        "hpcbench power --effect 0.03 --questions-per-document 4 --icc 0.3; what 200 documents can show: "
        "hpcbench power --documents 200; with scores as they spread in an experiment: "
        "hpcbench power @last --effect 0.03 --metric anls",
    )  # fmt: skip
    power.description = (
        "Tell how many documents a comparison of two runs needs to find a difference in 80 % of cases, "
        "from 10 documents on; samples of a document count less than their number."
    )
    power.add_argument(
        "experiment", nargs="?", help=f"{EXPERIMENT}; its scores say how they spread"
    )
    power.add_argument(
        "--effect", type=float, metavar="D", help="the difference to be found, in the metric's unit"
    )
    power.add_argument(
        "--documents", type=int, metavar="N", help="tell what so many documents can show"
    )
    power.add_argument(
        "--sd", type=float, help="standard deviation of samples' scores (0.5, or as seen)"
    )
    power.add_argument(
        "--rho", type=float, help="correlation of the two runs' scores of a sample (0.5)"
    )
    power.add_argument(
        "--questions-per-document", type=float, metavar="M",
        help="samples a document, on average (1, or as seen)",
    )  # fmt: skip
    power.add_argument(
        "--questions-cv", type=float, metavar="CV",
        help="their standard deviation over that average; 0: all documents are of one size "
        "(that of 1 to 2 M - 1 samples, each number as frequent, or as seen)",
    )  # fmt: skip
    power.add_argument(
        "--icc", type=float,
        help="correlation of differences within a document (0, or that of scores as seen)",
    )  # fmt: skip
    power.add_argument("--run-task", metavar="NAME", help="only this run task of the experiment")
    power.add_argument("--metric", metavar="NAME", help="only this metric")
    with_json(power)


def _usage(verb: Verb) -> None:
    """The verb that tells what was taken of the cluster."""
    usage = verb(
        "usage",
        "usage:usage",
        "show GPU-hours: allocated, used, and wasted by what",
        "hpcbench usage --all --by month",
    )
    usage.add_argument(
        "experiments", nargs="*", default=[], metavar="experiment", help=f"{EXPERIMENT} (@last)"
    )
    usage.add_argument("--all", action="store_true", help="of all experiments")
    usage.add_argument(
        "--by",
        choices=["run_task", "model", "experiment", "month"],
        help="what to add up by (run_task; of several experiments: experiment)",
    )
    with_json(usage)
    with_site(usage)


def _gc(verb: Verb) -> None:
    """The verb that gives room back."""
    gc = verb(
        "gc",
        "gc:gc",
        "give back what ended experiments take: files and room",
        "hpcbench gc --dry-run",
    )
    gc.add_argument(
        "experiments", nargs="*", default=[], metavar="experiment", help=f"{EXPERIMENT}; none: all"
    )
    gc.add_argument(
        "--older", type=float, metavar="DAYS",
        help="also delete whole experiments that ended, unchanged for so long; never a baseline of another",
    )  # fmt: skip
    gc.add_argument("--yes", action="store_true", help="delete without asking")
    gc.add_argument("--dry-run", action="store_true", help="say what would be done; touch nothing")
    with_json(gc)
    with_site(gc)


def _follow(verb: Verb) -> None:
    """Verbs that can follow what happens."""
    events = verb(
        "events", "follow:events", "show what happened to an experiment, a line each",
        "hpcbench events @last --follow --kind state,warning",
    )  # fmt: skip
    events.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    events.add_argument("-f", "--follow", action="store_true", help="go on until it has ended")
    events.add_argument(
        "--since", metavar="CURSOR", help="only what came after a cursor that --json has printed"
    )
    events.add_argument(
        "--kind", metavar="K,K,…",
        help="only these kinds, or sorts of them: state, progress, warning, resources; "
        "all but the monitor's readings (resources)",
    )  # fmt: skip
    events.add_argument("--json", action="store_true", help="print JSON, a line each")
    with_site(events)

    logs = verb(
        "logs", "follow:logs", "show logs of workers and jobs",
        "hpcbench logs @last node7 --engine --grep 'out of memory'",
    )  # fmt: skip
    logs.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    logs.add_argument(
        "name", nargs="?",
        help="only logs of this run task, worker, node or job, or whose name begins so; none: list all",
    )  # fmt: skip
    logs.add_argument("-f", "--follow", action="store_true", help="go on until it has ended")
    logs.add_argument("--engine", action="store_true", help="only wrappers' and engines' output")
    logs.add_argument("--grep", metavar="RE", help="only lines in which this is found")
    logs.add_argument(
        "-n", "--lines", type=int,
        help="so many last lines of each log (40; 10 with --follow; all with --grep)",
    )  # fmt: skip
    with_json(logs)
    with_site(logs)


def _load(verb: Verb) -> None:
    """The verb that measures speed under load."""
    load = verb(
        "load", "load:load", "run a plan at several loads: rates, latencies, goodput, the knee",
        "hpcbench load plan.yaml --concurrency 1,8,64 --slo ttft=500,tpot=50 --wait; in requests a second: "
        "hpcbench load plan.yaml --rate 0.5,1,2 --requests 200",
    )  # fmt: skip
    load.add_argument("plan", type=Path, help="the plan's YAML file")
    with_registry(load)
    with_settings(load)
    load.add_argument(
        "--concurrency", metavar="N,N,…",
        help="points with so many requests always in flight; none and no --rate: the plan's own sweep, "
        "else 1, 2, 4, … 64 as far as there are four samples for each",
    )  # fmt: skip
    load.add_argument("--rate", metavar="R,R,…", help="points with so many requests a second")
    load.add_argument(
        "--arrival",
        choices=["poisson", "constant"],
        help="how the requests of a rate come (poisson)",
    )
    load.add_argument("--requests", type=int, metavar="N", help="samples of each point (all)")
    load.add_argument(
        "--warm-up", type=int, metavar="N", help="samples asked before each point, not counted (8)"
    )
    load.add_argument(
        "--slo", metavar="NAME=MS,…", help="what a good answer keeps: ttft=500,tpot=50,e2e=10000"
    )
    load.add_argument(
        "--run-task",
        action="append",
        metavar="NAME",
        help="only this of the plan's run tasks; may be repeated",
    )
    load.add_argument("--dry-run", action="store_true", help="print points and jobs; touch nothing")
    load.add_argument("--wait", action="store_true", help="follow it to its end and print scores")
    # It submits as `submit` does, without what only that offers.
    load.set_defaults(
        estimate=False,
        limit=None,
        pilot=None,
        max_gpu_hours=None,
        if_idle=False,
        snapshot_env=False,
    )
    with_json(load)
