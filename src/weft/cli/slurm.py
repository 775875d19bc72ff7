"""`weft slurm`: a partition for each job."""

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
        `prolog`, `epilog`; or `tidy`, which asks squeue and deletes the partitions of jobs that are gone.
    ufm
        The address of a UFM, or of `weft serve`, https://ufm.example. WEFT_UFM_TOKEN has its token; or WEFT_UFM_USER
        and _PASSWORD.
    ufm_ca
        The certificates to trust of it; else this machine's.
    ip_over_ib
        The partition has the multicast groups that IPoIB needs.
    index0
        Its P_Key is at index 0 of its members: programs that know of no P_Keys use it.
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
        print(f"job {job.number}: it has no partition any longer")
