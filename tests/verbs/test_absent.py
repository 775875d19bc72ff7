"""Modules of pyverbs for features that weft's adapter lacks."""

from __future__ import annotations

import errno

import pytest

from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs.absent import AbsentModule, is_absent


@pytest.mark.parametrize(
    ("name", "absent"),
    [("flow", True), ("providers.mlx5.mlx5dv", True), ("providers.mlx5", False), ("providers", False), ("qp", False)],
)
def test_vendor_interfaces_and_flow_steering_are_absent(name, absent):
    assert is_absent(name) == absent


def test_an_absent_class_can_be_named_and_neither_made_nor_called():
    module = AbsentModule("pyverbs.flow")
    assert (module.CONSTANT, module.Flow.CONSTANT) == (0, 0)
    for use, text in ((module.Flow, "create Flow"), (module.Flow.open, "call Flow.open")):
        with pytest.raises(PyverbsRDMAError, match=text) as error:
            use(1, key=2)
        assert error.value.error_code == errno.EOPNOTSUPP
    assert module.Flow is module.Flow
    assert not hasattr(module, "__path__")
    assert not hasattr(module.Flow, "_private")
