"""Those who ask for partitions on behalf of others: OpenStack, CloudStack and Slurm, over UFM's REST interface."""
