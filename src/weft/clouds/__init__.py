"""Integrations with OpenStack, CloudStack and Slurm, over UFM's REST interface."""
