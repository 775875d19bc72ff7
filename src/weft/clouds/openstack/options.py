"""Options of the section [ml2_weft] in ml2_conf.ini."""

from __future__ import annotations

from oslo_config import cfg

from weft.clouds.openstack.members import LONGEST_PREFIX

GROUP = "ml2_weft"
OPTIONS = [
    cfg.StrOpt("ufm_url", help="URL of UFM or `weft serve`: https://ufm.example."),
    cfg.StrOpt("ufm_token", secret=True, help="Token for UFM. Alternative: ufm_user and ufm_password."),
    cfg.StrOpt("ufm_user"),
    cfg.StrOpt("ufm_password", secret=True),
    cfg.StrOpt("ufm_ca_file", help="CA file (PEM) for UFM's certificate. Default: the CAs of the system."),
    cfg.FloatOpt("ufm_timeout", default=10.0, min=0.1, help="Timeout of a call, in seconds."),
    cfg.ListOpt(
        "physical_networks",
        default=[],
        help="Physical networks that are InfiniBand: the segmentation id of their VLAN networks is a P_Key.",
    ),
    cfg.StrOpt(
        "prefix",
        default="neutron",
        regex=rf"[A-Za-z][\w-]{{0,{LONGEST_PREFIX - 1}}}",
        help="Prefix of partition names. A cloud owns all partitions with its prefix; each cloud needs its own.",
    ),
    cfg.BoolOpt("ip_over_ib", default=True, help="Create the multicast groups for IPoIB in partitions."),
    cfg.BoolOpt(
        "index0", default=False, help="Put the network's P_Key at index 0 of its members' tables, which ib0 uses."
    ),
    cfg.IntOpt(
        "resync_interval",
        default=60,
        min=0,
        help="Seconds between comparisons of Neutron's ports with UFM's partitions; 0: off.",
    ),
]


def register(configuration: cfg.ConfigOpts) -> None:
    configuration.register_opts(OPTIONS, group=GROUP)


def list_options() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for `oslo-config-generator --namespace weft`."""
    return [(GROUP, OPTIONS)]
