"""Integrations with OpenStack, CloudStack and Slurm, over UFM's REST interface."""

__all__ = ["cloudstack", "openstack", "slurm"]
