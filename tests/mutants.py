"""Mutants: changes of one place of a source file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tests.import_graph import ROOT

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
CONDITIONS = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
OPERATIONS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&")}
KERNEL_DECORATORS = {"kernel", "lean_kernel", "quick_kernel", "handler", "part", "inlined"}  # decorators in weft.jit
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """A change of the source: the bytes from `start` to `end` of a file become `text`."""

    path: Path
    line: int
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def describe(self, source: bytes) -> str:
        """Return the place and the change in one line."""
        old = " ".join(source[self.start : self.end].decode().split())
        line = source.splitlines()[self.line - 1].decode().strip()
        return f"{self.path.relative_to(ROOT)}:{self.line}: {old} -> {self.text.strip() or 'nothing'}   in: {line}"


class _Finder:
    """A walk over the syntax tree of a file that yields its mutants."""

    def __init__(self, path: Path) -> None:
        self.path, self.source = path, path.read_bytes()
        self.offsets = [0]
        for line in self.source.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        """Yield every mutant of the file."""
        yield from self._walk(ast.parse(self.source))

    def _walk(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.JoinedStr():  # texts; and places inside them are not exact before Python 3.12
                return
            case ast.keyword(arg="strict"):  # zip's check of equal lengths, which no test can fail
                return
            case ast.keyword(arg="frozen" | "kw_only"):  # in msgspec classes; decorators of dataclasses have no mutants
                return
        yield from self._mutate(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "exc"):  # types, decorators and messages
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._walk(child)

    def _mutate(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield from self._swap(node, left, right, COMPARISONS[type(operator)])
            case ast.BoolOp(op=operator, values=[left, right]):
                yield from self._swap(node, left, right, CONDITIONS[type(operator)])
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATIONS:
                yield from self._swap(node, left, right, OPERATIONS[type(operator)])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._mutant(node, self._start(node), self._start(operand), "")
            case ast.Constant(value=bool(value)):
                yield self._mutant(node, self._start(node), self._end(node), str(not value))
            case ast.Constant(value=int(value)):
                yield self._mutant(node, self._start(node), self._end(node), str(value + 1))
            case ast.Constant(value=float(value)):
                yield self._mutant(node, self._start(node), self._end(node), repr(value * 1.5 + 0.1))
            case ast.Call(func=ast.Name(id=name) as function) if name in CALLS:
                yield self._mutant(node, self._start(function), self._end(function), CALLS[name])
            case ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Break():
                yield self._mutant(node, self._start(node), self._end(node), "pass")
            case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
                yield self._mutant(node, self._start(node), self._end(node), "pass")

    def _swap(self, node: ast.AST, left: ast.AST, right: ast.AST, operators: tuple[str, str]) -> Iterator[Mutant]:
        """Yield the mutant with another operator between two operands."""
        start, end = self._end(left), self._start(right)
        between = self.source[start:end].decode()
        if between.count(operators[0]) == 1:
            yield self._mutant(node, start, end, between.replace(*operators))

    def _mutant(self, node: ast.AST, start: int, end: int, text: str) -> Mutant:
        return Mutant(self.path, node.lineno, start, end, text)  # type: ignore[attr-defined]

    def _start(self, node: ast.AST) -> int:
        return self.offsets[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def _end(self, node: ast.AST) -> int:
        return self.offsets[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]


def find_mutants(path: Path) -> list[Mutant]:
    """Return the mutants of a file in their order."""
    return sorted(_Finder(path).mutants())


def find_function(source: bytes, line: int) -> FunctionNode | None:
    """Return the innermost function with a line in its body; None for lines of modules, classes and signatures."""
    innermost = None
    for node in _functions_in(source):
        if node.body[0].lineno <= line <= (node.end_lineno or 0):
            innermost = node
    return innermost


@lru_cache
def _functions_in(source: bytes) -> list[FunctionNode]:
    """Return the functions of a source, outer ones before inner ones."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, FunctionNode)]


def is_kernel(function: FunctionNode) -> bool:
    """Return whether numba compiles a function."""
    return any(isinstance(name, ast.Name) and name.id in KERNEL_DECORATORS for name in function.decorator_list)
