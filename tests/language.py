"""Measure the language of Python files: docstring starts, vague names, and wordings that readers stumble over.

`python -m tests.language src/weft/sim` lists each place to improve, then the three shares. docs/style.md has the rules.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.syntax import walk

VERBS = frozenset((Path(__file__).parent / "imperative_verbs.txt").read_text(encoding="utf-8").split())
ARTICLES = frozenset({"a", "an", "the"})
VAGUE_NAMES = frozenset(
    re.findall(
        r"\w+",
        "one ones found made told said there here asked given wanted seen shown known kept taken got gone thing things "
        "those others what who whom which it these such",
    )
)
ODD_WORDING = re.compile(
    r"\b(?:nobody|somebody|whoever|whichever|in vain|without more ado|without a word|says? so|says? nothing|"
    r"(?:is|are|was|were|be|been) (?:told|asked of|let in)|(?:he|she) who|those who|who (?:asks|answers|comes|sends|"
    r"reads|writes|waits|has|is)|no longer there|there no longer|nothing else is|so many of|"
    r"alike|befall\w*|illness|mend(?:s|ed|ing)?|judges?|on its own account|as it is here|hang up)\b"
    r"|^(?:What|Who|Whose|Of|Whether|Where)\b(?!.*\?)",
    re.IGNORECASE,
)
COMMENT = re.compile(r"(?:^|  ) *#[#: ]*(.*)")  # as the formatter writes it; tokens take ten times as long
PROPERTY_DECORATORS = frozenset({"property", "cached_property", "fixture"})
MOST = 0.02  # share of places with a problem, for each kind


@dataclass(slots=True)
class Findings:
    """The problems of one kind: how many places were examined, and a line for each problem."""

    examined: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, place: str, problem: str | None) -> None:
        """Count a place, and its problem where it has one."""
        self.examined += 1
        if problem:
            self.problems.append(f"{place} {problem}")

    @property
    def share(self) -> float:
        """The share of places with a problem."""
        return len(self.problems) / max(self.examined, 1)


Measured = dict[str, Findings]


def measure(paths: Iterator[Path]) -> Measured:
    """Return the findings for Python files, by kind of problem."""
    starts, names, wording = Findings(), Findings(), Findings()
    for path in paths:
        text = path.read_text(encoding="utf-8")
        nodes = walk(ast.parse(text))
        for node in nodes:
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                and not node.name.startswith("test_")  # the docstring of a test is a statement
                and ast.get_docstring(node)
            ):
                starts.add(f"{path}:{node.lineno} {node.name}", start_problem(node))
        add_names(names, path, nodes)
        for line, prose in prose_of(text, nodes):
            odd = ODD_WORDING.search(prose)
            wording.add(f"{path}:{line}", f"{odd[0]!r}: {prose[:100]}" if odd else None)
    return {"docstring starts": starts, "vague names": names, "odd wording": wording}


def add_names(findings: Findings, path: Path, nodes: Iterable[ast.AST | None]) -> None:
    """Count the names that the nodes of a file bind, and the vague ones."""
    for node in nodes:
        if name := bound_name(node):
            vague = name.strip("_") in VAGUE_NAMES
            findings.add(f"{path}:{getattr(node, 'lineno', 1)}" if vague else "", f"name {name}" if vague else None)


def start_problem(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str | None:
    """Return the first line of a docstring that starts with the wrong kind of word, else None."""
    first_line = (ast.get_docstring(node) or "").split("\n")[0]
    word = re.split(r"[^\w'-]", first_line.lower(), maxsplit=1)[0]
    if isinstance(node, ast.ClassDef):
        fits = word in ARTICLES
    elif any(part in PROPERTY_DECORATORS for decorator in node.decorator_list for part in _names(decorator)):
        fits = word in ARTICLES | VERBS
    else:
        fits = word in VERBS
    return None if fits else f"starts with {word!r}: {first_line[:100]}"


def _names(decorator: ast.expr) -> Iterator[str]:
    for node in ast.walk(decorator):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def bound_name(node: ast.AST | None) -> str | None:
    """Return the name that a node binds, if it binds any."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else None
    if isinstance(node, ast.arg):
        return node.arg
    return node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else None


def prose_of(text: str, nodes: Sequence[ast.AST | None]) -> Iterator[tuple[int, str]]:
    """Yield each docstring, message and comment with its line: every string with a space, every comment."""
    in_f_strings = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if not isinstance(node, ast.JoinedStr | ast.Constant) or id(node) in in_f_strings:
            continue
        string = "".join(map(_literal, node.values if isinstance(node, ast.JoinedStr) else [node]))
        if " " in string.strip():
            yield node.lineno, " ".join(string.split())
    for number, line in enumerate(text.splitlines(), 1):
        if comment := COMMENT.search(line):
            yield number, comment[1]


def _literal(node: ast.AST) -> str:
    """Return the text of a string or of a part of an f-string, `{}` for a value, and nothing for other nodes."""
    if isinstance(node, ast.FormattedValue):
        return "{}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def main(folders: list[str]) -> None:
    """Print the problems of the files in folders, and the share of each kind."""
    paths = (
        path
        for folder in map(Path, folders)
        for path in ([folder] if folder.is_file() else sorted(folder.rglob("*.py")))
    )
    findings = measure(paths)
    for kind in findings.values():
        print(*kind.problems, sep="\n")
    for name, kind in findings.items():
        print(f"{name}: {len(kind.problems)} of {kind.examined}, {kind.share:.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
