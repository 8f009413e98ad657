"""One sample in full: what is said of it is what the files say, whatever is in them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench import secret
from hpcbench.errors import UserError
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_atomic, write_json
from hpcbench.planning import plan_work
from hpcbench.portal.image_regions import boxes_of, marked_on
from hpcbench.portal.json_safe import sound
from hpcbench.portal.models.samples import SampleDetail, SampleImage
from hpcbench.portal.sample_detail import detail_of, field_of
from hpcbench.portal.sample_table import sample_table_of
from hpcbench.portal.samples import SampleFilter, SampleOrder
from hpcbench.schema.records import Boxes, Sample
from tests.unit.evaluation.scene import asked, strange
from tests.unit.portal.asking import evaluated, png, portal_over, running
from tests.unit.small import measured, record, resolved, response, run_task, write_attempt

ID = "20261120-1432-plan-aaaa"


def detail(
    home: Path, place: int, chosen: SampleFilter | None = None, ordered: SampleOrder | None = None
) -> SampleDetail:
    portal = portal_over(home)
    return detail_of(
        sample_table_of(portal, ID, "rt"), place, chosen or SampleFilter(), ordered or SampleOrder()
    )


def test_a_diff_says_how_much_of_long_texts_it_leaves_out(tmp_path: Path) -> None:
    lines = [record(0, references=["a " * 10_000 + "b"]), record(1, references=["c"])]
    evaluated(tmp_path, ["a " * 15_000, "c"], lines)
    found = detail(tmp_path, 0)
    assert found.not_compared == (1, 9_999)  # blanks at an answer's end are not read
    assert sum(len(one.text) + 1 for one in found.diff) == 20_000
    assert detail(tmp_path, 1).not_compared == (0, 0)


def test_all_of_a_sample_is_shown(tmp_path: Path) -> None:
    lines = [
        record(number, metadata={"lang": "en"}, references=[str(number), "none"])
        for number in range(3)
    ]
    evaluated(tmp_path, ["0", "one two", "2"], lines, prompt={"system": "Be brief."})
    found = detail(tmp_path, 1)
    assert (found.row.sample, found.row.outcome, found.row.place) == ("s1", "ok", 1)
    assert (found.system, found.prompt) == ("Be brief.", "number 1?")
    assert (found.answer, found.prediction, found.references) == (
        "one two",
        "one two",
        ("1", "none"),
    )
    assert (dict(found.fields), dict(found.metadata)) == ({"question": "number 1?"}, {"lang": "en"})
    assert [(one.kind, one.text) for one in found.diff] == [("lost", "none"), ("added", "one two")]
    assert found.times["e2e"] == 0.001
    assert dict(found.usage) == {"prompt_tokens": 5, "completion_tokens": 1, "recount": None}
    assert (found.raw["sample_id"], found.raw["shard"], found.raw["attempt"]) == ("s1", 0, 1)
    assert (found.rank, found.previous, found.following) == (1, 0, 2)
    assert [(one.name, one.width, one.height) for one in found.images] == [("p.png", 40, 30)]


def test_neighbours_are_those_of_the_filter(tmp_path: Path) -> None:
    evaluated(tmp_path, ["0", "no", "2", "no", "4", "no"])
    wrong = SampleFilter(wrong=True)
    assert neighbours(detail(tmp_path, 3, wrong)) == (1, 1, 5)
    assert neighbours(detail(tmp_path, 3, wrong, SampleOrder("place", "desc"))) == (1, 5, 1)
    # One that the filter leaves out is between its neighbours all the same.
    assert neighbours(detail(tmp_path, 2, wrong)) == (1, 1, 3)


def neighbours(found: SampleDetail) -> tuple[int, int | None, int | None]:
    return found.rank, found.previous, found.following


def why(home: Path, place: int, metric: str = "exact_match") -> str:
    (one,) = [one for one in detail(home, place).accounts if one.metric == metric]
    return one.why


def test_each_metric_says_why(tmp_path: Path) -> None:
    here = running(tmp_path, ["0", "no", None, "3", "4"], asked=4, metrics=("exact_match", "cer"))
    evaluate(here)
    assert "compared with the reference: 1.000, the best possible score" in why(tmp_path, 0)
    assert "compared with the reference: 0.000" in why(tmp_path, 1)
    assert "2 ÷ 1 = 2.000" in why(tmp_path, 1, "cer")
    assert why(tmp_path, 2).startswith(
        "There is no answer: the outcome of the request is failed. It counts as 0"
    )
    assert why(tmp_path, 4) == "The sample was not sent to the model yet."
    assert detail(tmp_path, 2).error == "the engine hung up"


def test_a_metric_that_raised_says_so(tmp_path: Path) -> None:
    here = asked(tmp_path, ["1", "2"], strange("Raises"))
    evaluate(here)
    reported = why(tmp_path, 1, "raises")
    assert reported.startswith("The metric could not score the answer: KeyError")
    assert detail(tmp_path, 1).accounts[0].value is None


def test_fields_stand_with_what_was_expected_and_what_came(tmp_path: Path) -> None:
    lines = [record(0, references=[{"total": "12", "items": [{"price": "1"}, {"price": "2"}]}])]
    answer = '{"total": "13", "items": [{"price": "1"}, {"price": "2"}]}'
    evaluated(tmp_path, [answer], lines, plugin="kie", metrics=("kie_f1_micro",))
    (account,) = detail(tmp_path, 0).accounts
    reported = {
        one["field"]: (one["value"], one["reference"], one["answer"]) for one in account.fields
    }
    assert reported["total"] == (0.0, "12", "13")
    assert reported["items[].price"] == (1.0, "1 | 2", "1 | 2")


@pytest.mark.parametrize(
    ("value", "path", "reported"),
    [
        ({"a": {"b": 1}}, "a.b", "1"),
        ({"a.b": "x"}, "a.b", "x"),
        ({"a": [{"b": 1}, {"c": 2}, 3]}, "a[].b", "1"),
        ({"a": "text"}, "a[].b", None),
        (None, "a", None),
        ([], "a", None),
        ({"a": None}, "a", None),
    ],
)
def test_a_field_is_found_where_there_is_one(value: Any, path: str, reported: str | None) -> None:
    assert field_of(value, path) == reported


def test_thoughts_stand_apart(tmp_path: Path) -> None:
    evaluated(tmp_path, ["<think>\nhm, 0?\n</think>\n0", "<think>on and on", "2"])
    found = detail(tmp_path, 0)
    assert found.reasoning is not None
    assert "hm, 0?" in found.reasoning
    assert found.prediction == "0"
    assert detail(tmp_path, 1).reasoning == "<think>on and on"
    assert detail(tmp_path, 2).reasoning is None


def test_thoughts_that_the_engine_separated_are_shown(tmp_path: Path) -> None:
    here = running(tmp_path, ["0"], asked=0)
    write_attempt(here, 0, 1, [response("s0", "0", reasoning="1 - 1")])
    evaluate(here)
    assert detail(tmp_path, 0).reasoning == "1 - 1"


def test_secrets_are_masked(tmp_path: Path) -> None:
    secret.remember("hunter2-hunter2")
    here = running(tmp_path, ["0", "1"], asked=1)
    failed = response("s1", None, error="Authorization: Bearer abcdef0123456789abcdef")
    write_attempt(here, 0, 2, [response("s0", "the key is hunter2-hunter2"), failed])
    path = here.shard_responses("rt", 0, 1)
    path.write_bytes(path.read_bytes().replace(b'"text":"0"', b'"text":"hunter2-hunter2"'))
    found = detail(tmp_path, 0)
    assert found.answer == "***"
    assert "hunter2" not in found.model_dump_json()
    assert "abcdef0123456789" not in detail(tmp_path, 1).model_dump_json()


def test_a_note_comes_with_the_sample(tmp_path: Path) -> None:
    evaluated(tmp_path, ["0"])
    portal = portal_over(tmp_path)
    table = sample_table_of(portal, ID, "rt")
    table.cache.flags.mark(ID, "rt", "s0", "look <b>here</b>")
    found = detail_of(table, 0, SampleFilter(), SampleOrder())
    assert (found.row.flagged, found.note) == (True, "look <b>here</b>")


def test_a_sample_while_it_runs_is_shown_as_far_as_it_is_known(tmp_path: Path) -> None:
    running(tmp_path, ["0", "1"], asked=1)
    found = detail(tmp_path, 0)
    assert (found.answer, found.accounts, found.references) == ("0", (), ("0",))
    waiting = detail(tmp_path, 1)
    assert (waiting.row.outcome, waiting.answer, waiting.raw) == ("missing", None, {})
    assert waiting.prompt == "number 1?"


def test_scores_of_some_shards_only_belong_to_their_samples(tmp_path: Path) -> None:
    from hpcbench.experiment.control import control_request

    # Of an arm that was asked enough only shards that are done are scored: here the second one.
    here = running(tmp_path, [str(number) for number in range(8)], asked=0)
    some = [response(f"s{number}", str(number)) for number in range(4, 8)]
    write_attempt(here, 1, 1, some)
    control_request(here, "enough", ["rt"], "decided")
    evaluate(Experiment(here.path))
    found = detail(tmp_path, 2)
    assert (found.row.sample, found.answer, found.missing_images) == ("s6", "6", None)
    assert found.raw["sample_id"] == "s6"


# --- boxes ------------------------------------------------------------------------------------------------


def test_boxes_are_those_of_ocrbench_in_shares_of_the_image() -> None:
    grounding = {"kind": "grounding", "answer": "[100, 200, 300, 400]", "box": [100, 200, 300, 400]}
    one, other = boxes_of([grounding], "It is at (0, 0, 5, 5), no: [900, 1200, 500, 600]")
    assert (one.of, one.left, one.top) == ("reference", 0.1, 0.2)
    assert (round(one.width, 6), round(one.height, 6)) == (0.2, 0.2)
    assert (other.of, other.left, other.top) == ("answer", 0.5, 0.6)
    assert (round(other.width, 6), round(other.height, 6)) == (0.4, 0.4)
    spotting = {
        "kind": "spotting",
        "answer": ["one", "two"],
        "box": [[0, 0, 10, 0, 10, 10, 0, 10], [1, 2, 3, 4]],
    }
    found = boxes_of([spotting], "[[1, 1, 9, 9, 'one'], [5, 5, 6, 6, '<b>']]")
    assert [(box.of, box.label) for box in found] == [
        ("reference", "one"), ("reference", "two"), ("answer", "one"), ("answer", "<b>"),
    ]  # fmt: skip
    position = {"kind": "position", "answer": "Total", "box": [1, 2, 3, 4]}
    assert [
        box.label for box in boxes_of([position], '{"answer": "Total", "bbox": [1, 2, 3, 4]}')
    ] == ["Total", ""]


def test_other_references_have_no_boxes() -> None:
    assert (
        boxes_of(
            ["text", {"box": [1, 2, 3, 4]}, {"kind": "plain", "box": [1, 2, 3, 4]}], "[1, 2, 3, 4]"
        )
        == ()
    )
    assert boxes_of([], None) == ()


QUAD = {"x1": 4, "y1": 3, "x2": 20, "y2": 3, "x3": 20, "y3": 9, "x4": 4, "y4": 9}
CORD = {"valid_line": [{"category": "menu.nm", "words": [{"text": "Tea", "quad": QUAD}]}]}


def of_a_dataset(home: Path, **dataset: Any) -> SampleDetail:
    """The first sample of a dataset in `home / "data"`, which was not asked yet."""
    reported = {"source": str(home / "data"), **dataset}
    plan = resolved(run_task(dataset=reported))
    work = plan_work(plan, measured(plan, 1))
    here = Experiment(home / "experiments" / ID)
    write_atomic(here.resolved_file, plan.model_dump_json())
    write_json(here.manifest_file, {"work": asdict(work), "measured": {}})
    write_json(here.chosen_file, {"rt": [(0, 1)]})
    return detail(home, 0)


def test_what_a_dataset_marks_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "test"
    write_atomic(folder / "image" / "r.png", png(40, 30))
    write_json(folder / "json" / "r.json", CORD)
    found = of_a_dataset(tmp_path, iterator="cord", annotations="json", split="test")
    (box,) = found.boxes
    assert (box.label, box.of, box.image) == ("menu.nm", "reference", 0)
    assert (box.left, box.top, box.width, box.height) == (0.1, 0.1, 0.4, pytest.approx(0.2))
    assert dict(found.metadata) == {"split": "test"}


def test_what_a_dataset_marks_is_measured_by_its_own_size(tmp_path: Path) -> None:
    write_atomic(tmp_path / "data" / "images" / "a.png", png(40, 30))
    mark = {"image_id": 1, "category_id": 2, "bbox": [100, 0, 50, 100]}
    image = {"id": 1, "file_name": "a.png", "width": 200, "height": 100}
    known = {"categories": [{"id": 2, "name": "\ud800 table"}]}
    reported = {"images": [image], "annotations": [mark], **known}
    write_atomic(tmp_path / "data" / "all.json", json.dumps(reported))
    found = of_a_dataset(tmp_path, iterator="coco", annotations="all.json")
    (box,) = found.boxes
    assert (box.left, box.top, box.width, box.height) == (0.5, 0, 0.25, 1)
    assert box.label == "\\ud800 table"
    found.model_dump_json().encode()


def test_a_sample_whose_marks_cannot_be_had_is_shown_without() -> None:
    def gone() -> Boxes:
        raise UserError("the file is gone")

    here = (SampleImage(url="", name="p.png", width=40, height=30),)
    sample = Sample("a", (), {}, (), "a", {}, gone)
    assert marked_on(sample, here) == ()
    some = replace(sample, boxes=lambda: Boxes(((0, 0, 4, 3),), ("x",)))
    assert len(marked_on(some, here)) == 1
    assert marked_on(some, (SampleImage(url="", name="p.pdf"),)) == ()
    assert marked_on(some, ()) == ()
    assert marked_on(replace(sample, boxes=None), here) == ()
    assert marked_on(None, here) == ()


def test_labels_of_boxes_can_be_sent_whatever_an_answer_says() -> None:
    secret.remember("hunter2-hunter2")
    spotting = {"kind": "spotting", "answer": ["\ud800"], "box": [[0, 0, 1, 1]]}
    answer = "[[1, 1, 9, 9, '\\ud800'], [1, 1, 9, 9, 'hunter2-hunter2']]"
    found = boxes_of([spotting], answer)
    assert [box.label for box in found] == ["\\ud800", "\\ud800", "***"]
    for box in found:
        box.model_dump_json().encode()


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(st.characters())
        | st.binary(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_whatever_a_sample_holds_can_be_sent(value: Any) -> None:
    json.dumps(sound(value), allow_nan=False).encode()
    sent = json.dumps(sound(value), ensure_ascii=False, allow_nan=False)
    sent.encode()
