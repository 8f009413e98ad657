"""Verbs that bring results out of hpcbench, and into it."""

from __future__ import annotations

from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    Verb,
    with_json,
    with_registry,
    words,
)


def add(verb: Verb) -> None:
    """`export` and `import`."""
    _export(verb)
    _import(verb)


def _export(verb: Verb) -> None:
    export = verb(
        "export", "export:export",
        "write results as tables or as other kits' logs, send them elsewhere as traces, or print speed under "
        "another kit's names",
        "hpcbench export @last --what scores --out scores.parquet; "
        "hpcbench export --all --what metrics --format csv; "
        "hpcbench export @last --what scores --where \"anls < 0.5\" --format jsonl; "
        "hpcbench export @last --format inspect --out logs; "
        "hpcbench export @last --to phoenix --url http://localhost:6006; hpcbench export @last --compat vllm",
    )  # fmt: skip
    export.add_argument("experiment", nargs="?", help=f"{EXPERIMENT} (@last)")
    export.add_argument("--all", action="store_true", help="every experiment of this home")
    export.add_argument(
        "--format", choices=["csv", "json", "jsonl", "parquet", "lmms-eval", "inspect", "inspect-json"],
        help="form of a table, or the logs of another kit for its viewer; none: by the name of --out",
    )  # fmt: skip
    export.add_argument(
        "--what", choices=["responses", "scores", "metrics", "events", "resources"],
        help="which table (scores); docs/exports.md has every column",
    )  # fmt: skip
    export.add_argument(
        "--where", metavar="EXPR",
        help="only rows for which this holds: \"doc_type == 'form' and anls < 0.5\"",
    )  # fmt: skip
    export.add_argument(
        "--run-task", action="append", default=[], metavar="NAME", help="only this one; may be repeated"
    )  # fmt: skip
    export.add_argument(
        "--columns", type=words, default=[], metavar="A,B",
        help="only these, in this order; `*` and `?` as in file names",
    )  # fmt: skip
    export.add_argument(
        "--out",
        metavar="FILE",
        help="file, of another kit's logs a folder; none or -: standard output",
    )
    export.add_argument(
        "--excel", action="store_true", help="begin CSV with a byte order mark, so that Excel reads UTF-8"
    )  # fmt: skip
    place = export.add_mutually_exclusive_group()
    place.add_argument("--to", choices=["phoenix"], help="Arize Phoenix")
    place.add_argument(
        "--compat", choices=["vllm", "sglang", "guidellm", "aiperf"],
        help="what this kit's benchmark would have printed, by its own definitions",
    )  # fmt: skip
    export.add_argument("--url", help="address of Phoenix; a key is taken from PHOENIX_API_KEY")
    export.add_argument("--project", help="project there; none: the plan's name")
    with_json(export)


def _import(verb: Verb) -> None:
    brought = verb(
        "import", "import_:import_anything",
        "make an experiment of another kit's results, or plans of another program's",
        "hpcbench import outputs/Qwen2-VL-2B --from lmms-eval --metrics anls --map id=doc.questionId; "
        "hpcbench import --from v01 user_config.csv --vlm-base vlm_base.csv --out imported",
    )  # fmt: skip
    brought.add_argument(
        "file", type=Path, metavar="PLACE",
        help="folder of results, or one file of them; of v01 user_config.csv",
    )  # fmt: skip
    brought.add_argument(
        "--from", dest="form", required=True, choices=["lmms-eval", "vlmevalkit", "lm-eval", "v01"],
        help="the kit whose results they are; v01: plans of VLMHyperBench 0.1",
    )  # fmt: skip
    results = brought.add_argument_group("results of a kit")
    results.add_argument("--name", help="name of the experiment; none: that of the model")
    results.add_argument("--model", help="name of the model; none: as the kit tells it")
    results.add_argument(
        "--task", action="append", default=[], metavar="NAME",
        help="only this task of the kit; may be repeated",
    )  # fmt: skip
    results.add_argument(
        "--dataset", metavar="NAME",
        help="name of our dataset that the samples are of, so that run tasks match; none: the kit's task",
    )  # fmt: skip
    results.add_argument(
        "--ml-task", default="vqa", metavar="NAME", help="kind of work: an ml_tasks/ document (%(default)s)"
    )  # fmt: skip
    results.add_argument(
        "--metrics", type=words, default=[], metavar="A,B",
        help="score by these metrics of ours, too: only they compare with our own experiments",
    )  # fmt: skip
    results.add_argument(
        "--map", action="append", default=[], metavar="FIELD=KEY",
        help="where the kit's records keep id, document, references, answer or question, dots go down: "
        "id=doc.questionId; FIELD may be meta.NAME; may be repeated",
    )  # fmt: skip
    results.add_argument("--dry-run", action="store_true", help="only tell what would be imported")
    with_registry(brought)
    with_json(brought)
    plans = brought.add_argument_group("plans of v01")
    plans.add_argument("--vlm-base", type=Path, help="vlm_base.csv, the base of models")
    plans.add_argument(
        "--data-dirs", type=Path, help="folder with Datasets/ and PromptCollections/"
    )
    plans.add_argument(
        "--out", type=Path, default=Path("imported"), help="new folder (%(default)s)"
    )
