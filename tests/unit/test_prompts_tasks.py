"""Prompts name what samples have; answers are read as each kind of work needs."""

from __future__ import annotations

import pytest

from hpcbench.errors import UserError
from hpcbench.prompts import TemplatePrompt
from hpcbench.tasks.classification import Classification
from hpcbench.tasks.kie import Kie
from hpcbench.tasks.ocr import Ocr
from hpcbench.tasks.vqa import Vqa
from tests.unit.small import sample


def test_a_prompt_is_built_from_fields_and_metadata_and_shows_the_images() -> None:
    prompt = TemplatePrompt("You read {{ doc_type }}s.", "{{ question }} Ответ:", {})
    system, user = prompt.build(sample(metadata={"doc_type": "receipt"}))
    assert (system.role, system.text, system.images) == ("system", "You read receipts.", ())
    assert (user.role, user.text) == ("user", "Total? Ответ:")
    assert user.images == sample().images


def test_a_field_the_sample_does_not_have_is_an_error_that_names_both() -> None:
    with pytest.raises(UserError, match=r"sample 's1'.*'colour' is undefined"):
        TemplatePrompt(None, "{{ colour }}", {}).build(sample())


def test_a_template_that_is_none_is_told() -> None:
    with pytest.raises(UserError, match="no Jinja2 template"):
        TemplatePrompt(None, "{{ question", {})


def test_templates_reach_nothing_but_the_sample() -> None:
    with pytest.raises(UserError, match="s1"):
        TemplatePrompt(None, "{{ question.__class__.__mro__ }}", {}).build(sample())


@pytest.mark.parametrize("task", [Vqa(), Ocr()])
def test_text_answers_lose_only_the_space_around_them(task: Vqa | Ocr) -> None:
    assert task.parse("  12,50\nИТОГО \n", sample()) == "12,50\nИТОГО"


@pytest.mark.parametrize(
    ("text", "prediction"),
    [
        ('{"total": "1"}', {"total": "1"}),
        ('```json\n{"total": "1"}\n```', {"total": "1"}),
        ('The fields are {"total": "1"}', None),
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
