"""MANAGEMENT PLANE: what answers a MAD, how it gets there, and how a program sends one.

carrier     how a program sends and hears; `local` in this process, `umad` through libibumad, `ibsim_client`
bulk        the requests of one exchange; `datagrams`, `ibsim_packets`: what carries them; `transfers`: RMPP
walk        a subnet into arrays, and `rewalk`: what changed in it; `discover`: as objects
subnet      all agents of a fabric behind one call
transit     the way of a MAD, hop by hop; `packets`: of a data packet
sma         agent of subnet management, with `port_settings`, `sma_tables`, `m_key`
pma, cca    agents of performance management, with `samples`, and of congestion control
traps       what agents tell unasked
devices     state of all switches and adapters over the fabric's own tables and counters; `power_up`
links       cables that come up and go down; `faults`: what breaks them
"""

__all__ = ["carrier", "ibsim_client", "local", "umad"]
