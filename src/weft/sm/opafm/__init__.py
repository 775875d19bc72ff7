"""opafm.xml: the virtual fabrics of Omni-Path's fabric manager, as partitions and shares of bandwidth."""

__all__: list[str] = []
