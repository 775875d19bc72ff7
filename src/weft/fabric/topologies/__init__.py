"""Topologies: functions that build a fabric, and the registry that specs look them up in.

    from weft.fabric.topologies import fat_tree
    fabric = fat_tree(1024, switch="QM9700")          # the same as weft.load("fat-tree:hosts=1024,switch=QM9700")

In all topologies names and ports are numbered as an engineer would cable: hosts `h1`, `h2`, ... (`dgx1`, ... for other
templates) in the order of their switches; in a switch the hosts from port 1 up, then the ports to other switches (a
torus has its own order). `hosts` counts servers; a server takes one switch port for each of its rails.
"""

from weft.fabric.topologies.dragonfly import dragonfly, dragonfly_plus
from weft.fabric.topologies.fat_tree import fat_tree
from weft.fabric.topologies.hpn import hpn
from weft.fabric.topologies.hyperx import hyperx
from weft.fabric.topologies.registry import TOPOLOGIES
from weft.fabric.topologies.slim_fly import slim_fly
from weft.fabric.topologies.star import star
from weft.fabric.topologies.superpod import superpod
from weft.fabric.topologies.torus import mesh, torus

__all__ = [
    "TOPOLOGIES",
    "builder",
    "dragonfly",
    "dragonfly_plus",
    "fat_tree",
    "hpn",
    "hyperx",
    "mesh",
    "registry",
    "slim_fly",
    "star",
    "superpod",
    "torus",
]
