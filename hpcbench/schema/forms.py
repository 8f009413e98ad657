"""pydantic's messages in words: the form a text must have, never the regular expression that checks it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from hpcbench.schema.names import FLAT_NAME, NAME

_NAME = "one line of text without {}, with no space at its ends and none of . / ~ @ + - first"

FORMS: Mapping[str, str] = {
    NAME: _NAME.format("\\"),
    FLAT_NAME: _NAME.format("\\ and /"),
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "letters, digits and . _ -, with a letter or digit first",
    r"^[A-Za-z0-9.!+_-]+$": "a version such as 1.2.0: letters, digits and . ! + _ -",
    r"^[0-9a-f]{40}$": "a commit: 40 digits, 0-9 and a-f",
    r"^sha256:[0-9a-f]{64}$": "sha256: and 64 digits, 0-9 and a-f",
    r"^(\d+-)?\d{1,2}:\d{2}:\d{2}$": "of the form [DAYS-]HH:MM:SS, such as 02:00:00",
    r"^\d+\.\d+$": "of the form MAJOR.MINOR, such as 12.4",
    r"^\d+(\.\d+)*$": "a version such as 570.86.15: numbers separated by full stops",
    r"^0?[0-7]{3}$": "three octal digits, such as 027",
    r"^https?://\S+$": "an address that begins with https:// or http://",
    r"^[a-z]{2,3}$": "a language by ISO 639, two or three small letters, such as en",
    r"^[A-Za-z0-9_.:-]{1,64}$": "1 to 64 letters, digits and _ . : -",
    r"^[A-Z]{3}$": "a currency of three capital letters, such as USD",
    r"^[^\s/@]+$": "a host name",
    r"^[A-Za-z][A-Za-z0-9_-]{0,63}$": "1 to 64 letters, digits, _ and -, with a letter first",
    r"^\w[\w-]*(\.\w[\w-]*)*$": "the name of a Python module, such as my_project.tasks.own",
}
"""Regular expression of a field → what a text that matches it is."""


KINDS: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list: [A, B]",
    "list_type": "a list: [A, B]",
    "dict_type": "a map: {KEY: VALUE}",
    "mapping_type": "a map: {KEY: VALUE}",
    "model_type": "a map: {KEY: VALUE}",
    "dataclass_type": "a map: {KEY: VALUE}",
}
"""Type of a complaint of pydantic → what a value must be."""

NUMBERS = ("int_type", "float_type")
"""Types of complaints about what is no number at all."""

ModelT = TypeVar("ModelT", bound=BaseModel)


def checked(model: type[ModelT], data: Any) -> tuple[ModelT | None, list[dict[str, Any]]]:
    """Data as a model, or all that is wrong with them as `ValidationError.errors()` has it.

    Pydantic takes true and false for 1 and 0. In a definition they never are: `parallelism: yes`.
    """
    found, wrong = None, list[dict[str, Any]]()
    try:
        found = model.model_validate(data)
    except ValidationError as error:
        wrong = [dict(one) for one in error.errors()]
    try:
        model.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        wrong += [
            dict(one)
            for one in error.errors()
            if isinstance(one["input"], bool) and one["type"] in NUMBERS
        ]
    except ValueError:  # a number of more digits than Python writes
        pass
    return (None if wrong else found), wrong


def complaint(detail: Mapping[str, Any]) -> str:
    """Pydantic's complaint about a value, for people; one of `ValidationError.errors()`."""
    kind = detail["type"]
    if kind in KINDS:
        return f"must be {KINDS[kind]}"
    if kind == "union_tag_invalid":
        ctx = detail["ctx"]
        return f"{ctx['discriminator']} must be {ctx['expected_tags']}"
    if kind == "string_pattern_mismatch":
        pattern = detail.get("ctx", {}).get("pattern", "")
        return f"must be {FORMS[pattern]}" if pattern in FORMS else "has an invalid form"
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    for long, short in _SHORTER.items():
        if message.startswith(long):
            return short + message.removeprefix(long)
    return message[:1].lower() + message[1:]


_SHORTER = {
    "Input should ": "must ",
    "String should ": "must ",
    "Tuple should ": "must ",
    "List should ": "must ",
    "Dictionary should ": "must ",
    "Value should ": "must ",
}
