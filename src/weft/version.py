"""The version of weft, in a file that everybody may read: `weft` itself knows too much."""

__version__ = "0.1.0"
