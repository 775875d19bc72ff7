"""Read Megatron's pipeline layouts, such as Et*3|(tt|)*29,m|L: the layers of each stage, and of each of its chunks.

E is the embedding, t a layer of the transformer, m a module of multi-token prediction and L the loss; | ends a stage.
*3 repeats the letter or the group in parentheses before it, and commas mean nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from weft.errors import ConfigError

_REPEATS = (re.compile(r"\(([^()]+)\)\*(\d+)"), re.compile(r"([EtmL|])\*(\d+)"))
_LAYOUT = re.compile(r"E([t|]*)(m*)(\|?)L")
_MOST_LETTERS = 100_000


class Division(NamedTuple):
    """A division of a model among stages and their chunks."""

    layers: tuple[tuple[int, ...], ...]  # [stage][chunk]
    mtp: tuple[int, int]  # the stage and chunk with the modules of multi-token prediction


@lru_cache(maxsize=64)
def read_pipeline(text: str, pp: int, vp: int, layers: int, mtp: int) -> Division:
    """Return the division that a pipeline layout describes."""
    match = _LAYOUT.fullmatch(_expand(text))
    if match is None:
        raise ConfigError(
            f"pipeline_layout {text} must be E, then t and |, then m for each module of multi-token prediction, then L "
            "in that stage or the next and last, with repeats such as (tt|)*3"
        )
    sizes = [len(stage) for stage in (match[1] + match[3]).split("|")]
    for name, has, wants in (
        ("stages", len(sizes), pp * vp),
        ("layers t", sum(sizes), layers),
        ("modules m", len(match[2]), mtp),
    ):
        if has != wants:
            of = f"pp*vp = {pp}*{vp} = {wants}" if name == "stages" else f"the model's {wants}"
            raise ConfigError(f"pipeline_layout {text} has {has} {name}, not {of}")
    chunk, stage = divmod(pp * vp - 1 - len(match[3]), pp)
    return Division(tuple(tuple(sizes[stage::pp]) for stage in range(pp)), (stage, chunk))


def count_stages(text: str) -> int:
    """Return the number of stages times that of chunks in each."""
    return _expand(text).count("|") + 1


def _expand(text: str) -> str:
    """Return the letters with all repeats written out."""
    letters = text.replace(",", "")
    for repeat in _REPEATS:
        letters = repeat.sub(lambda match: match[1] * min(int(match[2]), _MOST_LETTERS), letters)
        if len(letters) > _MOST_LETTERS:
            raise ConfigError(f"pipeline_layout {text} has more than {_MOST_LETTERS:,} letters")
    return letters
