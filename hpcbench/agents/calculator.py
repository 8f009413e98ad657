"""Arithmetic that a model may ask for: exact, without `eval`, and bounded in time and size."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from hpcbench.plugins import ToolContext, ToolError

MOST_BITS = 20_000
"""Bits of the numerator and of the denominator of each number, at most."""

DIGITS = 28
"""Significant digits of a number that has no short decimal form."""

_EXACT = 40  # digits of a number that is written out whole
_ROOTS = Context(prec=60)
_SIGNS = str.maketrans(
    {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "\u00a0": " ", "\u202f": " "}
)


class Calculator:
    """Computes an arithmetic expression exactly.

    It knows + - * / // % ** and parentheses, and the functions abs, ceil, floor, max, min, round, sqrt and
    sum. Write numbers with a decimal point and without thousands separators: 1234.50. round(x, 2) rounds
    halves away from zero.
    """

    api: ClassVar[int] = 1
    idempotent: ClassVar[bool] = True
    stateless: ClassVar[bool] = True

    class Options(BaseModel):
        """The calculator has no options."""

        model_config = ConfigDict(extra="forbid")

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

        expression: str = Field(min_length=1, max_length=1000)
        """For example: round(3 * 19.99 * 1.19, 2)"""

    def __init__(self, options: Mapping[str, Any]) -> None:
        pass

    def call(self, arguments: Any, context: ToolContext) -> str:
        """The value as text."""
        return written(value_of(arguments.expression))

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """Arguments for the contract tests."""
        return {"arguments": {"expression": "round(3 * 19.99 * 1.19, 2)"}}


def value_of(expression: str) -> Fraction:
    """The exact value of an expression; roots and broken powers have 60 digits.

    Raises:
        ToolError: it is no arithmetic, has no value, or is too large.
    """
    source = expression.translate(_SIGNS).strip()
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"this is no arithmetic expression{_hint(source, error)}") from None
    try:
        return _Evaluation(source).value(tree.body)
    except RecursionError:
        raise ToolError("the expression is too deep: compute parts of it") from None


def written(value: Fraction) -> str:
    """A number as decimal text: exact if its decimal form ends and is short, else 28 significant digits."""
    if value.denominator == 1 and len(text := str(value.numerator)) <= _EXACT:
        return text
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    context = Context(prec=_EXACT)
    found = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    if rest == 1 and Fraction(found) == value and -_EXACT < found.adjusted() < _EXACT:
        return _plain(found)
    return f"about {_plain(Context(prec=DIGITS).plus(found))}"


def _plain(number: Decimal) -> str:
    number = number.normalize(Context(prec=_EXACT))
    return f"{number:f}" if -_EXACT < number.adjusted() < _EXACT else str(number)


def _hint(source: str, error: BaseException) -> str:
    if isinstance(error, (RecursionError, MemoryError)) or "too many nested" in str(error):
        return ": it is too deep"
    if "%" in source:
        return "; write 15 % of x as x * 15 / 100"
    if any(sign in source for sign in "$€£₽¥"):
        return "; write numbers without currencies"
    return f": {error.msg}" if isinstance(error, SyntaxError) else ""


class _Evaluation:
    def __init__(self, source: str) -> None:
        self._source = source

    def value(self, node: ast.AST) -> Fraction:
        if isinstance(node, ast.Constant):
            return self._number(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
            value = self.value(node.operand)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp):
            return self._of_two(node)
        if isinstance(node, ast.Call):
            return self._function(node)
        if isinstance(node, ast.Tuple):
            raise ToolError("write numbers without thousands separators: 1234.50, not 1,234.50")
        if isinstance(node, ast.Name):
            raise ToolError(f"there is no value '{node.id}': write numbers")
        raise ToolError(
            f"an expression cannot contain {type(node).__name__}: write numbers and + - * /"
        )

    def _number(self, node: ast.Constant) -> Fraction:
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            raise ToolError(f"{str(node.value)[:40]!r} is no number")
        text = (ast.get_source_segment(self._source, node) or "").replace("_", "")
        try:
            number = Decimal(text)
        except InvalidOperation:  # 0x1f
            return _checked(Fraction(node.value))
        if abs(number.adjusted()) > 1000:
            raise ToolError(f"{text[:40]} is too large or too small")
        return _checked(Fraction(number))

    def _of_two(self, node: ast.BinOp) -> Fraction:
        left, right = self.value(node.left), self.value(node.right)
        operation = _OPERATIONS.get(type(node.op))
        if operation is None:
            hint = ": write powers as 2 ** 3" if isinstance(node.op, ast.BitXor) else ""
            raise ToolError(f"an expression cannot contain {type(node.op).__name__}{hint}")
        try:
            return _checked(operation(left, right))
        except ZeroDivisionError:
            raise ToolError("division by zero") from None

    def _function(self, node: ast.Call) -> Fraction:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in _FUNCTIONS or node.keywords:
            raise ToolError(f"there is no such function; there are: {', '.join(_FUNCTIONS)}")
        given = [self.value(one) for one in self._listed(node.args)]
        least, most, function = _FUNCTIONS[name]
        if not least <= len(given) <= most:
            raise ToolError(f"{name} takes {least} to {most} numbers, not {len(given)}")
        return _checked(function(given))

    def _listed(self, nodes: Sequence[ast.expr]) -> Sequence[ast.expr]:
        """Arguments of a function; a list stands for its items, as in sum([1, 2])."""
        only = nodes[0] if len(nodes) == 1 else None
        return only.elts if isinstance(only, (ast.List, ast.Tuple)) else nodes


def _checked(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise ToolError("a number is too large")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        if base < 0:
            raise ToolError("a broken power of a negative number has no real value")
        return Fraction(0) if base == 0 and exponent > 0 else _broken_power(base, exponent)
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size > 1 and size * abs(exponent.numerator) > 2 * MOST_BITS:
        raise ToolError("a power is too large")
    if abs(exponent.numerator) > 2**31:  # of 0, 1 or -1
        exponent = Fraction(2 if exponent.numerator % 2 == 0 else 1) * (1 if exponent > 0 else -1)
    return base**exponent.numerator


def _broken_power(base: Fraction, exponent: Fraction) -> Fraction:
    size = abs(math.log2(base.numerator or 1) - math.log2(base.denominator))
    if size * abs(exponent) > MOST_BITS:
        raise ToolError("a power is too large")
    whole = _ROOTS.divide(Decimal(base.numerator), Decimal(base.denominator))
    power = _ROOTS.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(_ROOTS.power(whole, power))


def _root(value: Fraction) -> Fraction:
    if value < 0:
        raise ToolError("a negative number has no real root")
    exact = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    if exact * exact == value:
        return exact
    return Fraction(
        _ROOTS.sqrt(_ROOTS.divide(Decimal(value.numerator), Decimal(value.denominator)))
    )


def rounded(value: Fraction, digits: int) -> Fraction:
    """The number with so many digits after the point; halves go away from zero, as in invoices."""
    if abs(digits) > 1000:
        raise ToolError("round takes at most 1000 digits")
    scale = Fraction(10) ** digits
    whole = math.floor(abs(value) * scale + Fraction(1, 2))
    return Fraction(whole if value >= 0 else -whole) / scale


def _round(given: Sequence[Fraction]) -> Fraction:
    digits = given[1] if len(given) > 1 else Fraction(0)
    if digits.denominator != 1:
        raise ToolError("the second number of round must be whole")
    return rounded(given[0], digits.numerator)


_OPERATIONS: Mapping[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: lambda left, right: left % right,
    ast.Pow: _power,
}

_FUNCTIONS: Mapping[str, tuple[int, int, Callable[[Sequence[Fraction]], Fraction]]] = {
    "abs": (1, 1, lambda given: abs(given[0])),
    "ceil": (1, 1, lambda given: Fraction(math.ceil(given[0]))),
    "floor": (1, 1, lambda given: Fraction(math.floor(given[0]))),
    "max": (1, 500, max),
    "min": (1, 500, min),
    "round": (1, 2, _round),
    "sqrt": (1, 1, lambda given: _root(given[0])),
    "sum": (1, 500, lambda given: sum(given, Fraction(0))),
}
"""Function → fewest and most numbers, and its value."""
