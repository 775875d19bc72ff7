"""Configuration files: opensm.conf, opafm.xml, and what their options mean."""

__all__: list[str] = []
