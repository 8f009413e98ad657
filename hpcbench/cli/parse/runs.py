"""Verbs that start, follow and end experiments."""

from __future__ import annotations

from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    SCORED,
    MetricOption,
    Verb,
    also,
    with_json,
    with_metrics,
    with_names,
    with_registry,
    with_settings,
    with_site,
)


def _new(verb: Verb) -> None:
    new = verb(
        "new", "new:new", "ask a few questions, write a first plan, and check it",
        ("hpcbench new", "ask in a terminal"),
        ("hpcbench new --task vqa --dataset demo_vqa --model tiny-vlm", "without questions"),
    )  # fmt: skip
    new.add_argument("name", nargs="?", metavar="NAME", help="name of the plan")
    new.option(
        "--task NAME", "name of an ml_tasks/ definition: the work of the model", dest="ml_task"
    )
    new.option("--dataset NAME", "name of a datasets/ definition that fits the task")
    new.option("--model NAME", "name of a models/ definition; hpcbench warns if it does not fit")
    new.flag("--all-models", "also offer models that are too large for the site's GPUs")
    new.option(
        "--prompt NAME", "name of a prompts/ definition; default: the dataset's, else the task's"
    )
    with_metrics(new, "metrics of the task; default: its default metrics")
    new.option("--limit N", "maximum number of samples, 0 for all; default: 50", type=int)
    new.option("--out FILE", "file of the plan; default: NAME.yaml", type=Path)
    new.flag("--dry-run", "print the plan; write nothing")
    with_registry(new)


def add(verb: Verb) -> None:
    """Add the verbs for an experiment's run."""
    _new(verb)
    submit = verb(
        "submit", "submit:submit", "run an experiment plan",
        ("hpcbench submit PLAN --wait", "follow it, print the scores"),
        ("hpcbench submit examples/demo/plan.yaml --dry-run", "show the jobs, change nothing"),
        "hpcbench submit examples/demo/plan.yaml --estimate --limit 20 --set parallelism=1",
    )  # fmt: skip
    submit.add_argument("plan", type=Path, nargs="?", help="the plan's YAML file, or its name")
    also(submit, with_registry, with_settings)
    submit.flag(
        "--dry-run", "print jobs, shards, command lines, missing files and what does not fit; change nothing",
    )  # fmt: skip
    submit.flag(
        "--estimate", "print GPU-hours, time, disk space, files, jobs and fitting partitions; change nothing",
    )  # fmt: skip
    submit.option("--limit N", "use at most N samples of every run task", type=int)
    submit.option(
        "--pilot N",
        "stop a run task if a worker gets no readable answer to its first N samples of it; 0: never; "
        "default: 20", type=int,
    )  # fmt: skip
    submit.option("--max-gpu-hours H", "refuse a plan that could use more GPU-hours", type=float)
    submit.flag(
        "--if-idle",
        "for cron: submit nothing before the last run of this plan has ended; print its outcome before the "
        "next run",
    )  # fmt: skip
    submit.flag(
        "--snapshot-env",
        "run jobs from a copy of this Python environment, which later pip or git commands do not change",
    )  # fmt: skip
    answers = submit.add_mutually_exclusive_group()
    answers.add_argument(
        "--fresh", action="store_true",
        help="ask every sample, also those that an earlier experiment answered under the same key",
    )  # fmt: skip
    answers.add_argument(
        "--reuse", choices=["greedy", "sampled"],
        help="take over answers of earlier experiments: those of greedy decoding (default if RUN_MODE is "
        "prod), or sampled ones, too",
    )  # fmt: skip
    submit.flag("--wait", "follow the experiment to its end and print scores")
    also(submit, with_json, with_site)

    _reproduce(verb)

    rerun = verb(
        "rerun", "submit:rerun", "repeat an experiment with its stored definitions",
        "hpcbench rerun EXPERIMENT --wait",
        ("hpcbench rerun EXPERIMENT --source demo_vqa=/data/pages", "with the dataset in another folder"),
    )  # fmt: skip
    rerun.description = (
        "Repeat an experiment with the definitions, overlays and settings that are stored in it. hpcbench "
        "reads no registry."
    )
    rerun.add_argument("experiment", help=EXPERIMENT)
    rerun.several(
        "--source NAME=PLACE", "present place of this dataset or model, a folder or a URL; may be repeated",
    )  # fmt: skip
    rerun.flag("--dry-run", "print jobs, shards and sbatch scripts; change nothing")
    rerun.flag("--wait", "follow the experiment to its end and print scores")
    also(rerun, with_json, with_site)

    resume = verb(
        "resume", "submit:resume", "continue an experiment, or some of its run tasks",
        "hpcbench resume @last",
        ("hpcbench resume @last vqa-hard --pilot 0", "although the pilot of vqa-hard failed"),
        ("hpcbench resume @last --max-cost 20", "go on after a budget was used up"),
    )  # fmt: skip
    resume.add_argument("experiment", help=EXPERIMENT)
    resume.add_argument(
        "run_tasks", nargs="*", default=[], help="only these run tasks, by name or prefix"
    )
    resume.option(
        "--pilot N", "same as for `submit`; 0: continue a run task although its pilot failed", type=int,
    )  # fmt: skip
    resume.option(
        "--max-requests N", "budget of requests from now on, those sent so far included; replaces the plan's",
        type=int,
    )  # fmt: skip
    resume.option("--max-tokens N", "the same for tokens", type=int)
    resume.option("--max-cost X", "the same for money", type=float)
    resume.flag("--force", "confirm that the host of its local executor was switched off")
    resume.flag("--wait", "follow the experiment to its end and print scores")
    also(resume, with_json, with_site)

    for name, example in (
        ("pause", "hpcbench pause @last vqa-hard"), ("cancel", "hpcbench cancel @last"),
    ):  # fmt: skip
        text = f"{name} an experiment, or some of its run tasks"
        stopped = verb(name, f"submit:{name}", text, example)
        stopped.add_argument("experiment", help=EXPERIMENT)
        stopped.add_argument(
            "run_tasks", nargs="*", default=[], help="only these run tasks, by name or prefix"
        )
        with_site(stopped)

    listing = verb("list", "show:list_experiments", "list experiments", "hpcbench list")
    also(listing, with_json, with_site)

    status = verb(
        "status", "show:status", "show the progress of an experiment", "hpcbench status @last"
    )
    status.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    also(status, with_json, with_site)

    watch = verb("watch", "show:watch", "follow an experiment to its end", "hpcbench watch @last")
    watch.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    with_site(watch)

    _follow(verb)

    _report(verb)
    _notify(verb)
    _score(verb)
    _compare(verb)
    _ab(verb)
    _tune(verb)
    _power(verb)
    _usage(verb)
    _gc(verb)
    _load(verb)
    _remote(verb)


def _report(verb: Verb) -> None:
    """Add the verb that shows scores and writes reports."""
    report = verb(
        "report", "report:report", "print scores and the path of the report, or write the report again",
        "hpcbench report @last",
        ("hpcbench report @last --format markdown --to -", "print it"),
        ("hpcbench report @last --format latex --to paper", "tables for a paper"),
        ("hpcbench report @last --format pdf", "write a PDF"),
        ("hpcbench report @last --methods", "print the methods section of a paper"),
    )  # fmt: skip
    report.add_argument("experiment", nargs="?", default="@last", help=SCORED)
    with_names(
        report, "--format", metavar="NAMES",
        help="write these formats again: html, markdown, json, latex, pdf, or names of reports/ definitions",
    )  # fmt: skip
    report.option(
        "--to DIR",
        "folder to write to; default: report/ of the experiment, with --site HPCBENCH_HOME/remote; -: print "
        "one text report", type=Path,
    )  # fmt: skip
    report.flag(
        "--reused-times", "speed includes the times of answers that were taken over from earlier experiments",
    )  # fmt: skip
    report.flag("--open", "open the report in a browser of this machine")
    report.flag("--methods", "print the methods section of a paper, from the experiment's files")
    report.flag("--latex", "with --methods: as LaTeX instead of Markdown")
    also(report, with_registry, with_json, with_site)


def _remote(verb: Verb) -> None:
    """Add the verb that answers a laptop's `--site`."""
    remote = verb(
        "remote", "at_site:answer", "answer the `--site` of another machine, over standard input and output",
        "hpcbench remote hello <<< '{}'",
    )  # fmt: skip
    remote.add_argument("what", choices=["hello", "receive", "send", "submit"], help="the request")


def _reproduce(verb: Verb) -> None:
    """Add the verb that runs a published measurement."""
    reproduce = verb(
        "reproduce", "benchmarks:reproduce", "run the measurement of a published score, and compare",
        ("hpcbench reproduce chartqa --model Qwen/Qwen2.5-VL-3B-Instruct --dry-run", "show the jobs"),
        ("hpcbench reproduce chartqa --model Qwen/Qwen2.5-VL-3B-Instruct --estimate", "what it would cost"),
        note="The report shows the published score beside yours, with the conditions of both.",
    )  # fmt: skip
    reproduce.add_argument("name", metavar="NAME", help="dataset with published scores")
    reproduce.option("--model NAME", "models/ definition of the published model", required=True)
    also(reproduce, with_registry, with_settings)
    reproduce.flag("--dry-run", "print jobs, shards and command lines; change nothing")
    reproduce.flag("--estimate", "print GPU-hours, time and disk space; change nothing")
    reproduce.option("--limit N", "use at most N samples", type=int)
    reproduce.flag("--wait", "follow the experiment to its end and print scores")
    with_json(reproduce)
    reproduce.set_defaults(
        pilot=None, max_gpu_hours=None, if_idle=False, snapshot_env=False, fresh=False, reuse=None
    )


def _notify(verb: Verb) -> None:
    """Add the verb that sends missing notifications."""
    notify = verb(
        "notify", "notify:notify", "send missing notifications now, or send test notifications",
        "hpcbench notify @last",
        ("hpcbench notify PLAN --test", "test the notifications of a plan"),
    )  # fmt: skip
    notify.add_argument("target", nargs="?", default="@last", help=f"{EXPERIMENT}; or a plan")
    notify.flag("--test", "send a test to each receiver, and nothing else")
    also(notify, with_registry, with_settings, with_json, with_site)


def _score(verb: Verb) -> None:
    """Add the verb that makes tables of scores, and computes scores again."""
    score = verb(
        "score", "score:score", "print tables of scores by groups, and score answers again without a model",
        "hpcbench score @last --by outcome",
        ("hpcbench score @last --metrics anls --metric-option anls.tau=0.3 --save loose", "by other metrics"),
        ("hpcbench score FILE --ml-task vqa --dataset demo_vqa", "a file of answers"),
    )  # fmt: skip
    score.add_argument("target", help=f"{EXPERIMENT}; or a file of answers, JSONL or CSV")
    score.several("--run-task NAME", "only this run task; may be repeated")
    with_metrics(
        score,
        "these metrics instead of the plan's; hpcbench prints their scores, and stores them with --save",
    )  # fmt: skip
    score.option(
        "--metric-option METRIC.OPTION=VALUE", "option of a metric; may be repeated", dest="options",
        action=MetricOption, default={},
    )  # fmt: skip
    score.option(
        "--on-invalid", "leave answers without a value out, or count them as zero",
        choices=["exclude", "zero"],
    )  # fmt: skip
    with_names(
        score, "--by", metavar="COLUMN,COLUMN,…",
        help="one row for each group: field, model, prompt, outcome, document …, or metadata: doc_type",
    )  # fmt: skip
    score.option("--pivot COLUMN", "show this column of --by across: --by doc_type --pivot model")
    score.option("--weight COLUMN", "metadata with the weight of each sample")
    score.flag("--macro", "print the mean over the groups of --by")
    score.option("--save NAME", "store scores and metrics.json in rescored/NAME of the experiment")
    score.flag("--anew", "score all answers again, also those that have scores")
    score.flag("--dry-run", "list what would be scored; change nothing")
    score.option("--dataset", "for a file: name or file of the dataset's definition, or a folder")
    score.option("--ml-task NAME", "for a file: ML task, which sets the parser of the answers")
    score.option("--split", "for a file: only samples of this split")
    score.option(
        "--annotations", "for a folder: its table; default: %(default)s", default="annotations.jsonl",
    )  # fmt: skip
    also(score, with_registry, with_json)


def _compare(verb: Verb) -> None:
    """Add the verb that compares two or more runs."""
    compare = verb(
        "compare", "compare:compare", "compare candidates with a baseline, sample by sample",
        "hpcbench compare EXPERIMENT @last --margin exact_match=0.01",
        ("hpcbench compare EXPERIMENT @last --report compared.html", "write a page"),
        ("hpcbench compare @last @last --run-task vqa-easy=vqa-hard", "two run tasks of one experiment"),
    )  # fmt: skip
    compare.add_argument("baseline", help=SCORED)
    compare.add_argument(
        "candidates", nargs="+", metavar="candidate", help="experiments to compare with the baseline",
    )  # fmt: skip
    compare.several(
        "--run-task ONE[=OTHER]",
        "run tasks to pair; may be repeated; default: those with the same name, else the same question",
    )  # fmt: skip
    with_metrics(compare, "only these metrics")
    compare.several(
        "--margin [METRIC=]NUMBER",
        "largest difference that does not matter; without a margin no verdict is `equivalent`",
    )  # fmt: skip
    compare.option(
        "--counting",
        "count answers without a value as the worst, or exclude their samples in both; default: %(default)s",
        choices=["zero", "exclude"], default="zero",
    )  # fmt: skip
    compare.flag(
        "--common", "if the runs asked different samples, compare the samples that both asked"
    )
    compare.option(
        "--flips N",
        "show N lost and N won samples of each run task; default: 3, with --json and --flips-csv all",
        type=int,
    )  # fmt: skip
    compare.option("--flips-csv FILE", "write all lost and won samples of every metric", type=Path)
    compare.option(
        "--sample ID", "show only this sample: question, references, and the answer of each run"
    )
    compare.option("--report FILE", "write a page, .md or .html", type=Path)
    with_json(compare)


def _ab(verb: Verb) -> None:
    """Add the verb for two arms of one plan."""
    ab = verb(
        "ab", "ab:ab",
        "run two arms of a plan, or two plans, alternately on the same nodes, and compare them",
        "hpcbench ab examples/demo/plan.yaml --a generation.max_tokens=32 --b generation.max_tokens=64 "
        "--dry-run",
        "hpcbench ab PLAN --a model.dtype=bfloat16 --b model.dtype=float16 --metrics answers_per_s --wait",
        ("hpcbench ab A.yaml B.yaml --limit 20 --wait", "two plans, 20 samples of each run task"),
        ("hpcbench ab @last", "print the table again"),
    )  # fmt: skip
    ab.add_argument(
        "what", metavar="plan|experiment", help=f"the plan's YAML file or its name, or {EXPERIMENT}"
    )
    ab.add_argument(
        "other", nargs="?", metavar="plan",
        help="plan of arm b; run tasks of the same ML task and dataset make pairs",
    )  # fmt: skip
    for letter in "ab":
        ab.several(
            f"--{letter} PATH=VALUE",
            f"setting of arm {letter}: as for --set, or short for all run tasks (model.dtype=float16, "
            "generation.temperature=0); may be repeated",
        )
    ab.option("--limit N", "only the first N samples of a run task", type=int)
    with_metrics(
        ab,
        "metrics that decide, or answers_per_s, tokens_per_s, ttft_ms, tpot_ms, e2e_ms; default: the first "
        "metric of each run task",
    )  # fmt: skip
    ab.several(
        "--margin [METRIC=]NUMBER",
        "largest difference that does not matter; for a speed figure a fraction, 0.02 is 2 %%",
    )  # fmt: skip
    ab.option(
        "--alpha",
        "probability of any false alarm, over all looks and all deciding metrics; default: %(default)s",
        type=float, default=0.05,
    )  # fmt: skip
    ab.flag("--no-early-stop", "run all samples, and analyse once at the end")
    ab.flag("--dry-run", "print blocks, model loads and jobs; change nothing")
    ab.flag("--wait", "follow the experiment to its end and print the table")
    also(ab, with_registry, with_settings, with_json)


def _tune(verb: Verb) -> None:
    """Add the verb that searches the fastest settings."""
    tune = verb(
        "tune", "tune:tune",
        "find the settings with which an engine answers most samples a second",
        "hpcbench tune tiny-vlm --dataset demo_vqa --dry-run",
        ("hpcbench tune MODEL --dataset DATASET --budget 30", "a model that has a definition, 30 minutes"),
        ("hpcbench tune PLAN --try model.engine_options.max_num_seqs=64,128,256", "only these values"),
        note="Each step is an experiment of two arms in turns on the same nodes, as `hpcbench ab` makes "
        "them, and ends as soon as one is faster.",
    )  # fmt: skip
    tune.add_argument(
        "what", metavar="model|plan", help="a model's name, or a plan of one model by file or name"
    )
    tune.option("--dataset NAME", "dataset whose samples the model is asked")
    tune.option("--task NAME", "ML task; default: %(default)s", default="vqa")
    tune.option(
        "--budget MINUTES", "time for all steps, with the time in the queue; default: %(default)g",
        type=float, default=30.0,
    )  # fmt: skip
    tune.several(
        "--try PATH=VALUE,VALUE",
        "values of a setting, in order, instead of the engine's own; paths as for `ab --a`; may be repeated",
    )  # fmt: skip
    tune.option(
        "--limit N", "samples of each run task in a step; default: %(default)s", type=int, default=400,
    )  # fmt: skip
    tune.option(
        "--margin SHARE", "smallest gain that matters; default: %(default)s", type=float, default=0.02,
    )  # fmt: skip
    tune.option(
        "--alpha", "probability of a false result of each step; default: %(default)s", type=float,
        default=0.05,
    )  # fmt: skip
    tune.option(
        "--out DIR", "registry for the overlay with the model's settings; default: %(default)s", type=Path,
        default=Path("tuned"),
    )  # fmt: skip
    tune.flag("--dry-run", "print the settings and values that would be tried")
    also(tune, with_registry, with_settings, with_json)


def _power(verb: Verb) -> None:
    """Add the verb that computes how many documents a comparison needs."""
    power = verb(
        "power", "power:power", "compute how many documents a comparison of two runs needs",
        "hpcbench power --effect 0.03 --questions-per-document 4 --icc 0.3",
        ("hpcbench power --documents 200", "the difference that 200 documents show"),
        ("hpcbench power @last --effect 0.03 --metrics exact_match", "with the spread of measured scores"),
    )  # fmt: skip
    power.description = (
        "Compute how many documents a comparison of two runs needs to find a difference in 80 % of cases. "
        "Several samples of one document count less than samples of different documents. The computation "
        "holds from 10 documents on."
    )
    power.add_argument(
        "experiment", nargs="?", help=f"{EXPERIMENT}; hpcbench measures the spread of its scores"
    )
    power.option("--effect D", "difference to find, in the unit of the metric", type=float)
    power.option("--documents N", "compute the difference that N documents show", type=int)
    power.option(
        "--sd", "standard deviation of samples' scores; default: measured, else 0.5", type=float
    )
    power.option(
        "--rho", "correlation of the two runs' scores of a sample; default: 0.5", type=float
    )
    power.option(
        "--questions-per-document M", "mean number of samples per document; default: measured, else 1",
        type=float,
    )  # fmt: skip
    power.option(
        "--questions-cv CV",
        "standard deviation of that number, divided by its mean; 0: all documents have the same number; "
        "default: measured, else as for 1 to 2 M - 1 samples with equal frequency", type=float,
    )  # fmt: skip
    power.option(
        "--icc", "correlation of differences within a document; default: that of the measured scores, else 0",
        type=float,
    )  # fmt: skip
    power.option("--run-task NAME", "only this run task of the experiment")
    with_metrics(power, "only these metrics")
    with_json(power)


def _usage(verb: Verb) -> None:
    """Add the verb that shows the usage of the cluster."""
    usage = verb(
        "usage", "usage:usage", "show allocated, used and wasted GPU-hours",
        "hpcbench usage @last",
        "hpcbench usage --all --by month",
    )  # fmt: skip
    usage.add_argument(
        "experiments", nargs="*", default=[], metavar="experiment", help=f"{EXPERIMENT}; default: @last",
    )  # fmt: skip
    usage.flag("--all", "add up all experiments of this home")
    usage.option(
        "--by", "one row for each of these; default: run_task, for several experiments: experiment",
        choices=["run_task", "model", "experiment", "month"],
    )  # fmt: skip
    also(usage, with_json, with_site)


def _gc(verb: Verb) -> None:
    """Add the verb that frees space."""
    gc = verb(
        "gc", "gc:gc", "free files and space that ended experiments no longer need",
        "hpcbench gc --dry-run",
        ("hpcbench gc --older 90 --dry-run", "list old experiments to delete"),
    )  # fmt: skip
    gc.add_argument(
        "experiments", nargs="*", default=[], metavar="experiment", help=f"{EXPERIMENT}; default: all",
    )  # fmt: skip
    gc.option(
        "--older DAYS", "also delete ended experiments without a change for this many days, except baselines",
        type=float,
    )  # fmt: skip
    gc.flag("--yes", "do it without asking, for scripts")
    gc.flag("--dry-run", "list what would be done, and all caches; change nothing")
    also(gc, with_json, with_site)


def _follow(verb: Verb) -> None:
    """Add verbs that can follow an experiment."""
    events = verb(
        "events", "follow:events", "show the events of an experiment, one a line",
        "hpcbench events @last --kind state,warning",
        ("hpcbench events @last --follow", "continue until it has ended"),
    )  # fmt: skip
    events.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    events.flag("-f --follow", "continue until the experiment has ended")
    events.option("--since CURSOR", "only events after this cursor, which --json prints")
    events.option(
        "--kind K,K,…",
        "only these kinds, or these groups of kinds: state, progress, warning, resources; default: all but "
        "resources, the readings of the monitor",
    )  # fmt: skip
    events.flag("--json", "print JSON, one event a line")
    with_site(events)

    logs = verb(
        "logs", "follow:logs", "show logs of workers and jobs",
        ("hpcbench logs @last", "list the logs"),
        "hpcbench logs @last --engine --grep 'out of memory'",
    )  # fmt: skip
    logs.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    logs.add_argument(
        "name", nargs="?",
        help="only logs of this run task, worker, node or job, or logs with this prefix; default: list all",
    )  # fmt: skip
    logs.flag("-f --follow", "continue until the experiment has ended")
    logs.flag("--engine", "only output of wrappers and engines")
    logs.option("--grep RE", "only lines that match this regular expression")
    logs.option(
        "-n --lines", "number of last lines of each log; default: 40, with --follow 10, with --grep all",
        type=int,
    )  # fmt: skip
    also(logs, with_json, with_site)


def _load(verb: Verb) -> None:
    """Add the verb that measures speed under load."""
    load = verb(
        "load", "load:load", "run a plan at several loads: rates, latencies, goodput, the knee",
        "hpcbench load examples/demo/plan.yaml --concurrency 1,2,4 --run-task vqa-easy --dry-run",
        "hpcbench load PLAN --concurrency 1,8,64 --slo ttft=500,tpot=50 --wait",
        ("hpcbench load PLAN --rate 0.5,1,2 --requests 200", "in requests per second"),
    )  # fmt: skip
    load.add_argument("plan", type=Path, help="the plan's YAML file, or its name")
    also(load, with_registry, with_settings)
    load.option(
        "--concurrency N,N,…",
        "points with these numbers of requests in flight; default without --rate: the sweep of the plan, "
        "else 1, 2, 4, … 64 with at least four samples for each request in flight",
    )  # fmt: skip
    load.option("--rate R,R,…", "points with these numbers of requests per second")
    load.option(
        "--arrival", "arrival times of requests at a rate; default: poisson", choices=["poisson", "constant"],
    )  # fmt: skip
    load.option("--requests N", "number of samples of each point; default: all", type=int)
    load.option(
        "--warm-up N", "number of samples before each point, not counted; default: 8", type=int
    )
    load.option(
        "--slo NAME=MS,…", "latency limits of goodput in milliseconds: ttft=500,tpot=50,e2e=10000"
    )
    load.option(
        "--run-task NAME", "only this run task of the plan; may be repeated", action="append"
    )
    load.flag("--dry-run", "print points and jobs; change nothing")
    load.flag("--wait", "follow the experiment to its end and print scores")
    # It submits as `submit` does, without options that only `submit` has.
    load.set_defaults(
        estimate=False,
        limit=None,
        pilot=None,
        max_gpu_hours=None,
        if_idle=False,
        snapshot_env=False,
        fresh=True,
        reuse=None,
    )
    with_json(load)
