"""Replace pyverbs in a Python program: this folder is first in its search path. See `launch`."""

__all__: list[str] = []
