"""The fenced blocks of README and docs, for the tests that run them or load them into the program that they are for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where it is, its language, its text."""

    document: str  # path from the root of the repository
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def read_blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    name = str(document.relative_to(ROOT))
    return [Block(name, text.count("\n", 0, match.start()) + 1, match[1], match[2]) for match in _FENCE.finditer(text)]


def all_blocks(*languages: str) -> list[Block]:
    """Return the blocks of all documents in these languages, or in any language if none is given."""
    blocks = [block for document in DOCUMENTS for block in read_blocks(document)]
    return [block for block in blocks if not languages or block.language in languages]


def find_block(document: str, word: str) -> str:
    """Return the text of the one block of a document that has a word in it."""
    (block,) = (block for block in read_blocks(ROOT / document) if word in block.text)
    return block.text
