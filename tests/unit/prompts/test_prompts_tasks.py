"""Prompts name what samples have; answers are read as each kind of work needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.errors import UserError
from hpcbench.plugins import PromptSpec
from hpcbench.prompts import TaskPrompt, TemplatePrompt, prompt_hash
from hpcbench.registry.collections import read_collection
from hpcbench.schema.records import Message, PromptEntry, PromptExample, Sample
from hpcbench.tasks.classification import Classification
from hpcbench.tasks.kie import Kie
from hpcbench.tasks.ocr import Ocr
from hpcbench.tasks.vqa import Vqa
from tests.unit.small import run_task, sample


def test_a_prompt_is_built_from_fields_and_metadata_and_shows_the_images() -> None:
    prompt = TemplatePrompt(PromptSpec("{{ question }} Ответ:", "You read {{ doc_type }}s."))
    system, user = prompt.build(sample(metadata={"doc_type": "receipt"}))
    assert (system.role, system.text, system.images) == ("system", "You read receipts.", ())
    assert (user.role, user.text) == ("user", "Total? Ответ:")
    assert user.images == sample().images


def test_a_field_the_sample_does_not_have_is_an_error_that_names_both() -> None:
    with pytest.raises(UserError, match=r"sample 's1'.*'colour' is undefined"):
        TemplatePrompt(PromptSpec("{{ colour }}")).build(sample())


def test_a_template_that_is_none_is_reported() -> None:
    with pytest.raises(UserError, match="not a valid Jinja2 template"):
        TemplatePrompt(PromptSpec("{{ question"))


def test_templates_reach_nothing_but_the_sample() -> None:
    with pytest.raises(UserError, match="s1"):
        TemplatePrompt(PromptSpec("{{ question.__class__.__mro__ }}")).build(sample())


@pytest.mark.parametrize("task", [Vqa(), Ocr()])
def test_text_answers_lose_only_the_space_around_them(task: Vqa | Ocr) -> None:
    assert task.parse("  12,50\nИТОГО \n", sample()) == "12,50\nИТОГО"


@pytest.mark.parametrize(
    ("text", "prediction"),
    [
        ('{"total": "1"}', {"total": "1"}),
        ('```json\n{"total": "1"}\n```', {"total": "1"}),
        ('The fields are {"total": "1"}', {"total": "1"}),
        ("[1]", None),
        ("", None),
    ],
)
def test_key_information_is_one_json_object_or_cannot_be_read(
    text: str, prediction: object
) -> None:
    assert Kie().parse(text, sample()) == prediction


def test_a_label_is_read_without_case_and_punctuation() -> None:
    assert Classification().parse(' "Receipt". ', sample()) == "receipt"


# --- collections ----------------------------------------------------------------------------------------

ENTRIES = (
    PromptEntry("any", "Read {{ field }}."),
    PromptEntry("invoice", "Of this invoice: {{ field }}?", when={"doc_type": "invoice"}),
    PromptEntry("total", "The total?", when={"doc_type": "invoice", "field": "total"}),
    PromptEntry("here", "Итого?", when={"dataset": "d", "doc_type": "invoice", "field": "total"}),
)


def asked(field: str, doc_type: str) -> Sample:
    return sample(fields={"field": field}, metadata={"doc_type": doc_type})


@pytest.mark.parametrize(
    ("dataset", "one", "name", "text"),
    [
        ("d", asked("total", "invoice"), "here", "Итого?"),
        ("e", asked("total", "invoice"), "total", "The total?"),
        ("e", asked("date", "invoice"), "invoice", "Of this invoice: date?"),
        ("e", asked("date", "letter"), "any", "Read date."),
    ],
)
def test_the_most_specific_prompt_wins(dataset: str, one: Sample, name: str, text: str) -> None:
    prompt = TemplatePrompt(PromptSpec(entries=ENTRIES, dataset=dataset))
    assert prompt.name(one) == name
    assert prompt.build(one)[-1].text == text


def test_ties_and_holes_are_errors_that_name_the_sample_and_the_prompts() -> None:
    entries = (
        PromptEntry("a", "A", when={"doc_type": "invoice"}),
        PromptEntry("b", "B", when={"field": "total"}),
    )
    prompt = TemplatePrompt(PromptSpec(entries=entries))
    with pytest.raises(UserError, match="prompts 'a' and 'b' match sample 's1' equally well"):
        prompt.build(asked("total", "invoice"))
    with pytest.raises(
        UserError, match="no prompt matches sample 's1', with doc_type 'letter', field 'date'"
    ):
        prompt.build(asked("date", "letter"))
    assert (
        TemplatePrompt(PromptSpec("else", entries=entries)).build(asked("date", "letter"))[0].text
        == "else"
    )


@pytest.mark.parametrize(
    ("second", "reported"),
    [
        (PromptEntry("a", "B", when={"doc_type": "letter"}), "two prompts have the id 'a'"),
        (
            PromptEntry("b", "B", when={"doc_type": "invoice"}),
            "'a' and 'b' have the same conditions",
        ),
    ],
)
def test_entries_that_clash_are_found_without_any_sample(
    second: PromptEntry, reported: str
) -> None:
    first = PromptEntry("a", "A", when={"doc_type": "invoice"})
    with pytest.raises(UserError, match=reported):
        TemplatePrompt(PromptSpec(entries=(first, second)))


def test_examples_are_turns_before_the_samples_own() -> None:
    example = PromptExample("7.00", {"field": "sum"}, ("/shots/1.png",))
    prompt = TemplatePrompt(PromptSpec("{{ field }}?", "Be short.", examples=(example,)))
    system, question, answer, own = prompt.build(asked("total", "invoice"))
    assert (system.role, question.text, question.images) == (
        "system",
        "sum?",
        (Path("/shots/1.png"),),
    )
    assert (answer.role, answer.text, own.text) == ("assistant", "7.00", "total?")


def test_an_example_shows_nothing_of_the_samples_own(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="prompt 'a', example 2: 'ocr' is undefined"):
        TemplatePrompt(
            PromptSpec(
                entries=(PromptEntry("a", "{{ field }} {{ ocr }}"),),
                examples=(
                    PromptExample("1", {"field": "x", "ocr": "y"}),
                    PromptExample("2", {"field": "x"}),
                ),
            )
        )
    prompt = TemplatePrompt(
        PromptSpec(
            "{{ field }} of {{ dataset }}{{ ocr|default('') }}",
            dataset="d",
            examples=(PromptExample("7.00", {"field": "sum"}),),
        )
    )
    one = sample(fields={"field": "total", "ocr": "7.00"})
    assert [message.text for message in prompt.build(one)] == ["sum of d", "7.00", "total of d7.00"]


def test_dataset_and_task_are_names_of_definitions_whatever_the_sample_calls_so(
    tmp_path: Path,
) -> None:
    from hpcbench.data.datasets import open_dataset
    from hpcbench.schema.dataset import Dataset

    row = {"dataset_name": "IIIT5K", "type": "Regular Text", "question": "?",
           "image_path": "1.png", "answers": "UP"}  # fmt: skip
    (tmp_path / "OCRBench.json").write_text(json.dumps([row]))
    (tmp_path / "1.png").write_bytes(b"x")
    iterator = open_dataset(Dataset(name="ocr", source=str(tmp_path), iterator="ocrbench"))
    (one,) = iterator.iter(0, 1)
    assert one.metadata["dataset"] == "IIIT5K"
    entry = PromptEntry("a", "{{ dataset }}, {{ task }}", when={"dataset": "ocr"})
    prompt = TemplatePrompt(PromptSpec("else", entries=(entry,), dataset="ocr", task="vqa"))
    assert prompt.build(one)[-1].text == "ocr, vqa"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("{{ question + 1 }}", "TypeError: can only concatenate str"),
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{% include 'x' %}", "TypeError: no loader"),
        ("{{ '%d'|format(question) }}", "TypeError"),
        ("{{ question.index('?!') }}", "ValueError: substring not found"),
        ("{{ range(10 ** 9) }}", "OverflowError"),
        ("{{ 'a' * 10 ** 18 }}", "MemoryError"),
        ("{{ range }}", "the template prints a function"),
        ("{{ question.upper }}", "the template prints a function"),
    ],
)
def test_a_template_that_breaks_over_a_sample_is_an_error_that_names_both(
    text: str, reported: str
) -> None:
    entry = PromptEntry("a", text)
    with pytest.raises(UserError, match=f"prompt 'a' for sample 's1': {reported}"):
        TemplatePrompt(PromptSpec(entries=(entry,))).build(sample())


def test_a_run_tasks_prompt_names_its_definition() -> None:
    prompt = TaskPrompt(run_task(prompt={"user": "{{ colour }}"}))
    with pytest.raises(UserError, match="prompts/p: prompt `user` for sample 's1': 'colour' is un"):
        prompt.build(sample())


def test_an_example_that_lacks_a_field_is_reported_with_its_definition() -> None:
    with pytest.raises(UserError, match="prompts/p: example 1: 'question' is undefined"):
        TaskPrompt(run_task(prompt={"examples": (PromptExample("1", {}),)}))


def test_null_is_an_error_and_an_empty_text_a_value() -> None:
    prompt = TemplatePrompt(PromptSpec("{{ question }}: {{ unit }}"))
    one = {"question": "Total?", "unit": None}
    with pytest.raises(UserError, match="sample 's1': 'unit' is null") as reported:
        prompt.build(sample(fields=one))
    assert "`{{ NAME or '' }}`" in str(reported.value)
    assert prompt.build(sample(fields={**one, "unit": ""}))[0].text == "Total?: "
    allowed = TemplatePrompt(PromptSpec("{{ question }}{{ unit or '' }}{% if unit %}!{% endif %}"))
    assert allowed.build(sample(fields=one))[0].text == "Total?"


WITH_NULLS = {"question": "Total?", "unit": None, "table": {"rows": [1, None]}}


@pytest.mark.parametrize(
    "text",
    [
        "{{ unit|trim }}", "{{ unit|upper }}", "{{ unit|string }}", "{{ unit|replace('a', 'b') }}",
        "{{ 'in ' ~ unit }}", "{{ [question, unit]|join }}", "{{ '%s'|format(unit) }}",
        "{% macro m(x) %}{{ x|trim }}{% endmacro %}{{ m(unit) }}",
        "{{ table.rows[1]|trim }}", "{{ table.rows|join }}", "{{ table.rows }}", "{{ table }}",
        "{{ {'a': unit} }}", "{{ '%s'|format(table.rows) }}", "{{ unit.name }}", "{{ unit['name'] }}",
        "{% if unit.name %}A{% endif %}", "{{ unit + 1 }}", "{{ unit() }}", "{{ unit.name() }}",
    ],
)  # fmt: skip
def test_null_is_refused_in_whatever_makes_a_text_of_it(text: str) -> None:
    with pytest.raises(UserError, match="sample 's1': '(unit|table.rows.1.)' is null"):
        TemplatePrompt(PromptSpec(text)).build(sample(fields=WITH_NULLS))


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("{% if unit is none %}A{% endif %}{{ 'B' if unit == none }}", "AB"),
        ("{% if unit is not none %}A{% endif %}{{ 'B' if not unit }}", "B"),
        ("{{ unit|default('A') }}{{ unit|default('B', true) }}{{ unit or 'C' }}", "ABC"),
        ("{{ table|tojson }}", '{"rows": [1, null]}'),
        ("{{ table.rows|select|list }}", "[1]"),
        ("{{ 'A' if unit is defined }}{{ 'B' if unit is undefined }}", "A"),
        ("{{ 'A' if colour is defined }}{{ 'B' if colour is undefined }}", "B"),
        ("{{ unit.name|default('A') }}{{ 'B' if unit.name is defined }}", "A"),
        ("{{ 'A' if unit['name'] is defined }}{{ unit[0]|default('B') }}", "B"),
        ("{{ unit|attr('name')|default('A') }}", "A"),
        ("{{ unit|int(1) }}{{ unit|float(2) }}{{ 'A' if unit|int > 3 }}", "12"),
        ("{{ 'A' if unit is sameas none }}{{ 'B' if none is sameas unit }}", "AB"),
        ("{{ 'A' if unit is iterable }}{{ 'B' if unit is callable }}C", "C"),
        ("{{ 'A' if unit is sequence }}{{ 'B' if unit is mapping }}C", "C"),
        ("{{ 'A' if question is iterable }}{{ 'B' if question.upper is callable }}", "AB"),
    ],
)
def test_a_template_may_ask_whether_something_is_null(text: str, made: str) -> None:
    assert TemplatePrompt(PromptSpec(text)).build(sample(fields=WITH_NULLS))[0].text == made


class Untouched(dict[str, Any]):
    """An object that no code may look into."""

    def items(self) -> Any:
        raise AssertionError("it was looked into")


def test_what_a_template_does_not_name_is_not_read() -> None:
    one = sample(metadata={"words": Untouched(a=1), "range": "R", "doc_type": "D"})
    text = "{% block a %}{{ doc_type }}{% endblock %}{% for x in [1] %}{{ question }}{% endfor %}{{ range }}"
    assert TemplatePrompt(PromptSpec(text)).build(one)[0].text == "DTotal?R"


def test_a_prompt_that_says_nothing_is_an_error_unless_it_is_meant_to() -> None:
    empty = sample(fields={"question": ""})
    with pytest.raises(UserError, match="prompt `user` for sample 's1' is empty"):
        TemplatePrompt(PromptSpec("{{ question }}")).build(empty)
    assert TemplatePrompt(PromptSpec("")).build(empty)[0].text == ""


@pytest.mark.parametrize("text", ["{{ lipsum() }}", "{{ cycler }}", "{{ joiner() }}"])
def test_what_is_no_field_of_a_sample_is_nothing_else_either(text: str) -> None:
    prompt = TemplatePrompt(PromptSpec(text))
    assert prompt.placeholders()
    with pytest.raises(UserError, match="is undefined"):
        prompt.build(sample())


def test_nothing_in_a_prompt_is_drawn_by_lot() -> None:
    with pytest.raises(UserError, match="No filter named 'random'"):
        TemplatePrompt(PromptSpec("{{ [1, 2]|random }}"))


def test_a_template_cannot_change_the_sample() -> None:
    one = sample(fields={"labels": ["a"]})
    with pytest.raises(UserError, match="attribute .append. of .list. object is unsafe"):
        TemplatePrompt(PromptSpec("{{ labels.append('b') or 'x' }}")).build(one)
    assert one.fields["labels"] == ["a"]


@pytest.mark.parametrize(
    ("wanted", "there", "holds"),
    [
        ("true", True, True),
        ("TRUE", True, True),
        (True, "true", True),
        ("false", True, False),
        (1, 1.0, True),
        ("1", 1.0, True),
        (1.0, "1", True),
        ("1.0", "1", False),
        ("01", "1", False),
        (" invoice", "invoice ", True),
        ("сч\u0435\u0308т", "сч\u0451т", True),
        ("Invoice", "invoice", False),
        ("1", True, False),
        (9007199254740993, 9007199254740992, False),
        ("9007199254740993", 9007199254740993, True),
        (2**70, float(2**70), True),
        (10**400, "1e5", False),
        (1000, "1_000", False),
    ],
)
def test_conditions_compare_what_people_read(wanted: Any, there: Any, holds: bool) -> None:
    entry = PromptEntry("a", "A", when={"kind": wanted})
    prompt = TemplatePrompt(PromptSpec("else", entries=(entry,)))
    assert prompt.name(sample(metadata={"kind": there})) == ("a" if holds else "")


def test_what_is_remembered_of_one_value_is_not_taken_for_another() -> None:
    entries = tuple(PromptEntry(kind, "A", when={"kind": kind}) for kind in ("1", "true"))
    prompt = TemplatePrompt(PromptSpec("else", entries=entries))
    there = (1, True, "1", "true", 1.0, ["1"], 1)
    named = [prompt.name(sample(metadata={"kind": one})) for one in there]
    assert named == ["1", "true", "1", "true", "1", "", "1"]


def test_an_entry_for_all_beside_a_user_message_for_all_is_reported() -> None:
    with pytest.raises(UserError, match="prompts 'any' and `user` have the same conditions"):
        TemplatePrompt(PromptSpec("else", entries=(PromptEntry("any", "A"),)))


class Wrong:
    """A strategy that is none."""

    api = 1
    made: tuple[Message, ...] = ()

    def __init__(self, spec: PromptSpec) -> None: ...

    def build(self, one: Sample) -> tuple[Message, ...]:
        return self.made


@pytest.mark.parametrize(
    ("made", "reported"),
    [
        ((), "makes no message for sample 's1'"),
        (
            (Message("user", "?"), Message("assistant", "!")),
            "makes a last message of the assistant",
        ),
    ],
)
def test_a_strategy_that_asks_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch, made: tuple[Message, ...], reported: str
) -> None:
    monkeypatch.setattr(Wrong, "made", made)
    prompt = TaskPrompt(run_task(prompt={"strategy": f"{__name__}.Wrong"}))
    with pytest.raises(UserError, match=f"strategy '.*Wrong' {reported}"):
        prompt.build(sample())


def test_what_is_sent_beside_the_messages_is_one_thing() -> None:
    task = run_task(
        output_schema="response_format", generation={"max_tokens": 5, "extra": {"top_k": 3}}
    )
    name = "team/kie.v2 ü" + "x" * 80
    task = task.model_copy(
        update={"ml_task": task.ml_task.model_copy(update={"output_schema": {}, "name": name})}
    )
    sent = TaskPrompt(task).generation
    form = sent.pop("response_format")
    assert sent == {"max_tokens": 5, "temperature": 0.0, "top_p": 1.0, "top_k": 3}
    assert form["json_schema"]["name"] == ("team_kie_v2__" + "x" * 80)[:64]


@pytest.mark.parametrize("schema", ["none", "prompt", "response_format"])
def test_the_output_schema_is_sent_as_the_run_task_says(schema: str) -> None:
    wanted = {"type": "object", "required": ["total"]}
    task = run_task(output_schema=schema)
    task = task.model_copy(
        update={"ml_task": task.ml_task.model_copy(update={"output_schema": wanted})}
    )
    prompt = TaskPrompt(task)
    text = prompt.build(sample())[-1].text
    assert ('"required": ["total"]' in text) == (schema == "prompt")
    reported = prompt.generation.get("response_format", {}).get("json_schema", {}).get("schema")
    assert reported == (wanted if schema == "response_format" else None)


def test_the_hash_of_a_prompt_changes_with_its_words_and_its_example_images(tmp_path: Path) -> None:
    image = tmp_path / "1.png"
    image.write_bytes(b"one")
    base = run_task(prompt={"examples": (PromptExample("x", images=(str(image),)),)})
    first = prompt_hash(base)
    assert prompt_hash(base) == first
    image.write_bytes(b"two")
    assert prompt_hash(base) != first
    assert prompt_hash(run_task(prompt={"user": "other"})) != prompt_hash(run_task())
    image.unlink()
    with pytest.raises(UserError, match="cannot read the image of an example"):
        prompt_hash(base)


def test_the_hash_of_a_prompt_does_not_know_where_its_images_lie(tmp_path: Path) -> None:
    hashes = set()
    for folder in ("here", "there"):
        image = tmp_path / folder / "1.png"
        image.parent.mkdir()
        image.write_bytes(b"one")
        example = PromptExample("x", {"question": "?"}, (str(image),))
        one = run_task(prompt={"prompts": (PromptEntry("a", "A", examples=(example,)),)})
        hashes.add(prompt_hash(one))
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("prompt", "differ"),
    [
        ({"user": "Of {{ dataset }}?"}, True),
        ({"prompts": (PromptEntry("a", "A", when={"dataset": "d"}),)}, True),
        ({"user": "Of {{ question }}?"}, False),
    ],
)
def test_the_hash_of_a_prompt_knows_the_names_it_says(prompt: dict[str, Any], differ: bool) -> None:
    one, other = run_task(prompt=prompt), run_task(prompt=prompt, dataset={"name": "other"})
    assert (prompt_hash(one) != prompt_hash(other)) == differ


def test_the_hash_of_words_alone_stays_over_versions() -> None:
    entry = PromptEntry(
        "a", "A {{ x }}", when={"doc_type": "invoice"}, examples=(PromptExample("1", {"x": 1}),)
    )
    found = [
        prompt_hash(run_task()),
        prompt_hash(run_task(prompt={"system": "S", "prompts": (entry,)})),
    ]
    assert found == [
        "sha256:016a51b2fbdbbccb3e8b6a5ef4423792bdf0a2a44151a1ddc11b48154df77458",
        "sha256:be6b799d871e854691b46c78485a3c0313a1ece40497a940740f59a4a3bd514c",
    ]


def test_a_csv_is_a_collection_whose_other_columns_are_conditions(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(
        "id;user;system;doc_type;field\ntotal;Итого {{ x }}?;;invoice;total\nany;Read.;Be short.;;\n",
        encoding="utf-8-sig",
    )
    total, other = read_collection(tmp_path / "p.csv")
    assert total == PromptEntry(
        "total", "Итого {{ x }}?", when={"doc_type": "invoice", "field": "total"}
    )
    assert (other.system, dict(other.when)) == ("Be short.", {})


def test_a_v01_collection_is_literal_text_chosen_by_class_and_type(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(
        "prompt;doc_class_question_type;CER\nЧто {{ тут }}?;invoice sum;0.4\n", encoding="utf-8-sig"
    )
    prompt = TemplatePrompt(
        PromptSpec("{{ question }}", entries=read_collection(tmp_path / "p.csv"))
    )
    one = sample(metadata={"doc_class": "invoice", "question_type": "sum"})
    assert prompt.build(one)[-1].text == "Что {{ тут }}?"
    assert prompt.name(one) == "invoice sum"


@pytest.mark.parametrize("mark", ["\u2028", "\x0b", "\x85"])
def test_a_cell_of_a_csv_keeps_what_some_take_for_line_ends(tmp_path: Path, mark: str) -> None:
    (tmp_path / "p.csv").write_text(f"id;doc_type;user\na; x ;one{mark}two\n;;\n", "utf-8")
    (one,) = read_collection(tmp_path / "p.csv")
    assert (one.user, dict(one.when)) == (f"one{mark}two", {"doc_type": "x"})


def test_a_csv_takes_other_names_of_columns_and_examples_in_json(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(
        "id;template;system_prompt;doc_type;examples\n"
        'a;Q?;Be short.;letter;"[{""fields"": {""field"": ""sum""}, ""answer"": ""1""}]"\n'
    )
    assert read_collection(tmp_path / "p.csv") == (
        PromptEntry(
            "a", "Q?", "Be short.", {"doc_type": "letter"}, (PromptExample("1", {"field": "sum"}),)
        ),
    )


@pytest.mark.parametrize("head", ["id,user,lang", "name,user,lang"])
def test_a_row_that_comes_twice_in_a_csv_is_left_out(tmp_path: Path, head: str) -> None:
    (tmp_path / "p.csv").write_text(f"{head}\n1,Q,ru\n2,Q,de\n1,Q,ru\n")
    assert [one.when["lang"] for one in read_collection(tmp_path / "p.csv")] == ["ru", "de"]


def test_another_name_of_a_column_is_a_condition_beside_our_own(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id;user;template;system;system_prompt\na;Q?;T1;S;2\n")
    (one,) = read_collection(tmp_path / "p.csv")
    assert (one.user, one.system, one.when) == ("Q?", "S", {"template": "T1", "system_prompt": "2"})


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("id,user\n1\n", "p.csv:2: the row has more or fewer columns"),
        ("id,text\n1,x\n", "p.csv:2: column 'user' is missing or empty"),
        ("id,user\n", "p.csv: the file contains no prompt"),
        ("id,user\n1,x\n1,y\n",
         "p.csv:3: two prompts have the id '1'; the other one ends in line 2"),
        ("id,user,user\n1,x,y\n", "p.csv:1: column 'user' occurs twice"),
        ("id,template,template\n1,x,y\n", "p.csv:1: column 'template' occurs twice"),
        ("id;user;examples\n1;x;no\n", "p.csv:2: examples: Invalid JSON"),
        ('id;user;examples\n1;x;[{"answer": "1", "text": "2"}]\n',
         "p.csv:2: examples: 0.text: Unexpected keyword argument"),
        ('id;user;examples\n1;x;[{"answer": "1", "images": ["a.png"]}]\n',
         "p.csv:2: examples with images belong in the prompt's definition"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_collection_is_reported_at_its_line(
    tmp_path: Path, text: str, reported: str
) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(UserError) as caught:
        read_collection(tmp_path / "p.csv")
    assert str(caught.value).replace(f"{tmp_path}/", "").startswith(reported)
