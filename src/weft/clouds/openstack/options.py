"""[ml2_weft] in ml2_conf.ini."""

from __future__ import annotations

from oslo_config import cfg

from weft.clouds.openstack.members import LONGEST_PREFIX

GROUP = "ml2_weft"
OPTIONS = [
    cfg.StrOpt("ufm_url", help="Where the UFM answers, or `weft serve`: https://ufm.example."),
    cfg.StrOpt("ufm_token", secret=True, help="A token of it. Or ufm_user and ufm_password."),
    cfg.StrOpt("ufm_user"),
    cfg.StrOpt("ufm_password", secret=True),
    cfg.StrOpt("ufm_ca_file", help="Certificates, in PEM, that its own is signed by; else those of the system."),
    cfg.FloatOpt("ufm_timeout", default=10.0, min=0.1, help="Seconds to wait for an answer."),
    cfg.ListOpt(
        "physical_networks",
        default=[],
        help="Physical networks that are InfiniBand: the segmentation id of their VLAN networks is a P_Key.",
    ),
    cfg.StrOpt(
        "prefix",
        default="neutron",
        regex=rf"[A-Za-z][\w-]{{0,{LONGEST_PREFIX - 1}}}",
        help="Names of partitions start with it. Two clouds on one UFM need two: what has its prefix is a cloud's own.",
    ),
    cfg.BoolOpt("ip_over_ib", default=True, help="Partitions have the multicast groups that IPoIB needs."),
    cfg.BoolOpt("index0", default=False, help="A network's P_Key is at index 0 of its members: ib0 is in it."),
    cfg.IntOpt(
        "resync_interval",
        default=60,
        min=0,
        help="Seconds between two comparisons of Neutron's ports with the UFM's partitions; 0: none are made.",
    ),
]


def register(configuration: cfg.ConfigOpts) -> None:
    configuration.register_opts(OPTIONS, group=GROUP)


def list_options() -> list[tuple[str, list[cfg.Opt]]]:
    """For oslo-config-generator --namespace weft."""
    return [(GROUP, OPTIONS)]
