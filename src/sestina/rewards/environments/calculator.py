"""A calculator for whole numbers: reads the sum or product that a text ends with. Evaluates nothing else."""

import ast
import operator
import re
from collections.abc import Callable

MAX_CHARACTERS = 200
"""Of an expression; longer ones are not read."""
MAX_DIGITS = 30
"""Of a number, a value on the way or the result; beyond them there is no answer."""

_TAIL = re.compile(r"[0-9+*\-./%^(), ]*\Z")
"""What may belong to an expression: half of one, as 5+1 is of 1.5+1, would have another value."""
_LEAD = re.compile(r"\A[.,)%]*\s+")
"""The end of a clause before the expression."""
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def calculate(text: str, *, modulus: int = 0) -> str:
    """Return the value of the sum or product at the end of `text`, modulo `modulus` unless that is 0; else "".

    A number alone is no sum.

    Example:
        >>> calculate("so 12*3+4")
        '40'
        >>> calculate("l8+3", modulus=10)
        '1'
    """
    found = _TAIL.search(text)
    expression = _LEAD.sub("", found[0]).strip() if found else ""
    if not expression or len(expression) > MAX_CHARACTERS:
        return ""
    try:
        tree = ast.parse(expression, mode="eval").body
        value = _value(tree) if isinstance(tree, ast.BinOp) else None
    except (SyntaxError, _UnreadableError):
        return ""
    return "" if value is None else str(value % modulus if modulus else value)


class _UnreadableError(ValueError):
    """Not a sum or product of whole numbers, or too large a one."""


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int() as value):
            found = value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            found = _OPERATORS[type(op)](_value(left), _value(right))
        case _:
            raise _UnreadableError
    if abs(found) >= 10**MAX_DIGITS:
        raise _UnreadableError
    return found
