"""Options of OpenSM 3.3.23 that weft does not use, with OpenSM's defaults: weft reports that another value has no
effect.
"""

from __future__ import annotations

from pathlib import PurePath

from weft.sm.conf.option_values import read_number

_DEFAULTS = """
m_key_lookup TRUE
force_link_speed 15
force_link_speed_ext 31
force_link_width 255
fdr10 1
use_mfttop TRUE
sm_assigned_guid 0x00
port_profile_switch_nodes FALSE
port_prof_ignore_file (null)
hop_weights_file (null)
port_search_ordering_file (null)
dimn_ports_file (null)
avoid_throttled_links FALSE
connect_roots FALSE
use_ucast_cache FALSE
lid_matrix_dump_file (null)
lfts_file (null)
cn_guid_file (null)
io_guid_file (null)
quasi_ftree_indexing FALSE
max_reverse_hops 0
ids_guid_file (null)
guid_routing_order_file (null)
do_mesh_analysis FALSE
lash_start_vl 0
nue_max_num_vls 1
nue_include_switches FALSE
port_shifting FALSE
scatter_ports 0
guid_routing_order_no_scatter FALSE
sa_db_file (null)
sa_db_dump FALSE
torus_config /etc/opensm/torus-2QoS.conf
max_wire_smps2 4
max_smps_timeout 600000
long_transaction_timeout 500
single_thread FALSE
daemon FALSE
ipoib_mcgroup_creation_validation TRUE
mcgroup_join_validation TRUE
use_original_extended_sa_rates_only FALSE
use_optimized_slvl FALSE
fsync_high_avail_files TRUE
perfmgr FALSE
perfmgr_redir TRUE
perfmgr_sweep_time_s 180
perfmgr_max_outstanding_queries 500
perfmgr_ignore_cas FALSE
perfmgr_rm_nodes TRUE
perfmgr_log_errors TRUE
perfmgr_query_cpi TRUE
perfmgr_xmit_wait_log FALSE
perfmgr_xmit_wait_threshold 65535
event_db_dump_file (null)
event_plugin_name (null)
event_plugin_options (null)
log_flags 0x03
force_log_flush FALSE
log_max_size 0
accum_log_file TRUE
per_module_logging_file /etc/opensm/per-module-logging.conf
enable_quirks FALSE
disable_multicast FALSE
exit_on_fatal TRUE
console off
console_port 10000
suppress_sl2vl_mad_status_errors FALSE
prefix_routes_file /etc/opensm/prefix-routes.conf
consolidate_ipv6_snm_req FALSE
log_prefix (null)
"""

UNUSED: dict[str, str] = dict(line.split(" ", 1) for line in _DEFAULTS.split("\n") if line)


def is_default(name: str, text: str) -> bool:
    """Return whether the text is OpenSM's default. The folder of its files depends on the build."""
    default = UNUSED[name]
    if default.startswith("/"):
        return PurePath(text).name == PurePath(default).name
    try:
        return read_number(text) == read_number(default)
    except ValueError:
        return text.lower() == default.lower()
