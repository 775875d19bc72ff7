"""Those who ask for slices on behalf of others: OpenStack, CloudStack and Slurm, over UFM's REST interface."""
