"""Verbs that export and import results."""

from __future__ import annotations

from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    Verb,
    also,
    with_json,
    with_metrics,
    with_names,
    with_registry,
)


def add(verb: Verb) -> None:
    """Add `export` and `import`."""
    _export(verb)
    _import(verb)


def _export(verb: Verb) -> None:
    export = verb(
        "export", "export:export",
        "write results as tables or as logs of other kits, send them as traces, or print speed figures under "
        "the names of another kit",
        "hpcbench export @last --what scores --out scores.parquet",
        ("hpcbench export --all --what metrics --format csv", "the metrics of all experiments"),
        ("hpcbench export @last --where \"exact_match < 0.5\" --format jsonl", "the samples with low scores"),
        ("hpcbench export @last --format inspect --out logs", "logs for the viewer of Inspect"),
        ("hpcbench export @last --format atif --out trajectories", "what agents did, turn by turn"),
        ("hpcbench export @last --compat vllm", "speed figures as vLLM's benchmark names them"),
        ("hpcbench export @last --compat v01 --out answers", "answers in the CSV form of VLMHyperBench 0.1"),
        "hpcbench export @last --to phoenix --url http://localhost:6006",
    )  # fmt: skip
    export.add_argument("experiment", nargs="?", help=f"{EXPERIMENT}; default: @last")
    export.flag("--all", "export all experiments of this home")
    export.add_argument(
        "--format", choices=[
            "csv", "json", "jsonl", "parquet", "lmms-eval", "inspect", "inspect-json", "atif",
        ],
        help="format of a table, or of another kit's logs; atif: trajectories of agents; default: by the "
        "suffix of --out",
    )  # fmt: skip
    export.add_argument(
        "--what", choices=[
            "responses", "scores", "metrics", "events", "resources", "token_refresh_metrics",
        ],
        help="the table; default: scores; docs/exports.md defines every column",
    )  # fmt: skip
    export.option(
        "--where EXPR", "only rows for which this is true: \"doc_type == 'form' and anls < 0.5\""
    )
    export.several("--run-task NAME", "only this run task; may be repeated")
    with_names(
        export, "--columns", metavar="A,B",
        help="only these columns, in this order; `*` and `?` match any characters",
    )  # fmt: skip
    export.option("--out FILE", "the file, for logs the folder; default, or -: standard output")
    export.flag("--excel", "begin CSV with a byte order mark, so that Excel reads UTF-8")
    place = export.add_mutually_exclusive_group()
    place.add_argument("--to", choices=["phoenix"], help="send traces to Arize Phoenix")
    place.add_argument(
        "--compat", choices=["vllm", "sglang", "guidellm", "aiperf", "v01"],
        help="print the speed figures of this kit's benchmark, by the definitions of the kit; v01: write "
        "the answers as VLMHyperBench 0.1 did, a CSV for each run task",
    )  # fmt: skip
    export.option("--url", "address of Phoenix; hpcbench reads its key from PHOENIX_API_KEY")
    export.option("--project", "project in Phoenix; default: the plan's name")
    with_json(export)


def _import(verb: Verb) -> None:
    brought = verb(
        "import", "import_:import_anything",
        "make an experiment from the results of another kit, or convert files of VLMHyperBench 0.1 and 0.2",
        "hpcbench import FOLDER --from lmms-eval --metrics anls --map id=doc.questionId",
        "hpcbench import FILE --from v01 --vlm-base vlm_base.csv --out imported",
        ("hpcbench import registries --from v02 --dry-run", "show what changes in v0.2's definitions"),
    )  # fmt: skip
    brought.add_argument(
        "file", type=Path, metavar="PLACE",
        help="folder of results, or one file of them; for v01: user_config.csv, or a CSV of answers; for "
        "v02: folder of registries",
    )  # fmt: skip
    brought.option(
        "--from",
        "the kit that made the results; v01: plans and answers of VLMHyperBench 0.1; v02: registries of "
        "VLMHyperBench 0.2", dest="form", required=True,
        choices=["lmms-eval", "vlmevalkit", "lm-eval", "v01", "v02"],
    )  # fmt: skip
    results = brought.add_argument_group("results of a kit")
    results.add_argument("--name", help="name of the experiment; default: the name of the model")
    results.add_argument(
        "--model", help="name of the model; default: the name in the kit's results"
    )
    results.add_argument(
        "--task", action="append", default=[], metavar="NAME",
        help="only this task of the kit; may be repeated",
    )  # fmt: skip
    results.add_argument(
        "--dataset", metavar="NAME",
        help="name of the same dataset in hpcbench, so that run tasks match; default: the kit's task; for a "
        "CSV of answers, which needs it, also a folder or file",
    )  # fmt: skip
    results.add_argument(
        "--ml-task", default="vqa", metavar="NAME",
        help="name of an ml_tasks/ definition; default: %(default)s",
    )  # fmt: skip
    with_metrics(
        results, "also score by these metrics of hpcbench: only their scores compare with its experiments",
    )  # fmt: skip
    results.add_argument(
        "--map", action="append", default=[], metavar="FIELD=KEY",
        help="key of the kit's records that has id, document, references, answer, question or meta.NAME; "
        "dots separate levels: id=doc.questionId; may be repeated",
    )  # fmt: skip
    results.add_argument(
        "--dry-run", action="store_true", help="list what would be imported or changed, and store nothing",
    )  # fmt: skip
    also(brought, with_registry, with_json)
    plans = brought.add_argument_group("plans of v01")
    plans.add_argument("--vlm-base", type=Path, help="vlm_base.csv, the table of models")
    plans.add_argument(
        "--data-dirs", type=Path, help="folder with Datasets/, PromptCollections/, ModelsAnswers/"
    )
    plans.add_argument("--out", type=Path, help="new folder; default: imported")
