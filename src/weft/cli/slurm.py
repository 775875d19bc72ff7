"""`weft slurm`: give each Slurm job its own partition."""

from __future__ import annotations

import os
from typing import Literal

from weft.cli.arguments import File, OnByDefault
from weft.cli.tenant_drivers import connect_ufm


def slurm(
    action: Literal["prolog", "epilog", "tidy"],
    /,
    *,
    ufm: str,
    ufm_ca: File = None,
    ip_over_ib: OnByDefault = True,
    index0: bool = False,
) -> None:
    """Give a Slurm job its own partition.

    For PrologSlurmctld and EpilogSlurmctld.

    The job is read from SLURM_JOB_ID and SLURM_JOB_NODELIST, as slurmctld sets them.

    Parameters
    ----------
    action
        `prolog`, `epilog`; or `tidy`, which deletes the partitions of jobs that squeue no longer lists.
    ufm
        The address of UFM, or of `weft serve`, https://ufm.example. Set WEFT_UFM_TOKEN, or WEFT_UFM_USER and
        WEFT_UFM_PASSWORD.
    ufm_ca
        CA file for UFM's certificate. [this machine's CAs]
    ip_over_ib
        Create the multicast groups that IPoIB needs.
    index0
        Put the P_Key at index 0 of the members' tables, for programs that do not choose a P_Key.
    """
    from weft.clouds.slurm import ask_squeue, epilog, prolog, read_job, tidy

    client = connect_ufm(ufm, ufm_ca)
    if action == "tidy":
        for number in tidy(client, ask_squeue):
            print(f"job {number}: its partition is deleted")
        return
    job = read_job(os.environ)
    if action == "prolog":
        p_key = prolog(client, job, ip_over_ib=ip_over_ib, index0=index0)
        print(f"job {job.number}: {job.nodes} has the partition {p_key:#06x}")
    else:
        epilog(client, job)
        print(f"job {job.number}: its partition is deleted")
