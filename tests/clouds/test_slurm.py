from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from weft.cli.slurm import slurm
from weft.clouds.slurm import Job, epilog, prolog, read_job, tidy
from weft.errors import ConfigError, SubnetError
from weft.tenants.drivers.ufm_rest import UfmError


@pytest.fixture(autouse=True)
def _hosts(server):
    server.hosts = {f"h{number}": [f"{number:016x}", f"{number + 16:016x}"] for number in range(1, 5)}


def test_a_running_job_has_the_p_key_of_ufms_plugin(server, ufm):
    job = Job(0x7FFE + 5, "h[1-2]")
    assert prolog(ufm, job) == 5
    assert (server.partitions[5]["partition"], server.members(5)) == ("slurm-32771", {1, 2, 17, 18})
    assert set(server.partitions[5]["guids"].values()) == {False}  # not at index 0
    assert server.partitions[5]["ip_over_ib"]
    epilog(ufm, job)
    assert server.partitions == {}
    epilog(ufm, job)


@pytest.mark.parametrize(("number", "p_key"), [(1, 1), (0x7FFD, 0x7FFD), (0x7FFE, 1), (0x7FFF, 1)])
def test_no_job_gets_p_key_zero_or_that_of_default(ufm, number, p_key):
    assert prolog(ufm, Job(number, "h1")) == p_key


def test_jobs_with_the_same_preferred_p_key_never_share_a_partition(server, ufm):
    """A job may still run when the job 32766 ids later starts."""
    ufm.create_pkey(6, "somebody", ip_over_ib=True)
    old, new = Job(5, "h1"), Job(5 + 0x7FFE, "h2")
    assert (prolog(ufm, old), prolog(ufm, new)) == (5, 7)
    epilog(ufm, new)
    assert {p_key: server.members(p_key) for p_key in server.partitions} == {5: {1, 17}, 6: set()}


def test_a_requeued_job_has_only_its_new_nodes(server, ufm):
    """This holds even if the epilog of its first try failed."""
    prolog(ufm, Job(9, "h[1-2]"))
    prolog(ufm, Job(9, "h3"))
    assert {p_key: server.members(p_key) for p_key in server.partitions} == {9: {3, 19}}


def test_a_job_with_unknown_nodes_creates_no_partition(server, ufm):
    with pytest.raises(UfmError, match="no such host"):
        prolog(ufm, Job(9, "h[1-9]"))
    assert server.partitions == {}


def test_running_out_of_p_keys_is_an_error(server, ufm):
    server.partitions = {p_key: {"partition": "x", "ip_over_ib": True, "guids": {}} for p_key in range(1, 0x8000)}
    with pytest.raises(SubnetError, match="job 9: all P_Keys are taken"):
        prolog(ufm, Job(9, "h1"))


def test_tidy_deletes_partitions_of_ended_jobs(server, ufm):
    ufm.create_pkey(100, "slurm-7-notes", ip_over_ib=True)
    for number in (1, 2, 3):
        prolog(ufm, Job(number, f"h{number}"))
    assert tidy(ufm, lambda: {2}) == [1, 3]
    assert {partition["partition"] for partition in server.partitions.values()} == {"slurm-2", "slurm-7-notes"}


def test_a_job_that_starts_during_tidy_keeps_its_partition(server, ufm):
    def ask() -> set[int]:
        prolog(ufm, Job(8, "h1"))  # after the list of jobs was made
        return set()

    assert tidy(ufm, ask) == []
    assert server.members(8) == {1, 17}


@pytest.mark.parametrize("lacking", [{"SLURM_JOB_ID": "7"}, {"SLURM_JOB_ID": "x", "SLURM_JOB_NODELIST": "h1"}])
def test_missing_slurm_variables_are_named(lacking):
    with pytest.raises(ConfigError, match="run this as PrologSlurmctld"):
        read_job(lacking)


@pytest.fixture
def run(server, monkeypatch) -> Callable[[str], None]:
    for name, value in {"WEFT_UFM_TOKEN": "t", "SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "h[1-2]"}.items():
        monkeypatch.setenv(name, value)
    return lambda action: slurm(action, ufm=server.url)


def test_the_command_reads_slurmctlds_variables(server, run, monkeypatch, capsys):
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "11")  # a task of it is a job of its own
    run("prolog")
    assert capsys.readouterr().out == "job 12: h[1-2] has the partition 0x000c\n"
    assert server.members(12) == {1, 2, 17, 18}
    run("epilog")
    assert capsys.readouterr().out == "job 12: its partition is deleted\n"
    assert server.partitions == {}


def test_tidy_deletes_nothing_if_squeue_fails(server, run, monkeypatch, tmp_path, capsys):
    """A failure must not be read as an empty list of jobs."""
    run("prolog")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="cannot run squeue: No such file"):
        run("tidy")
    squeue = tmp_path / "squeue"
    for script, error in (("echo Unable to contact slurm controller >&2; exit 1", SubnetError), ("echo 12", None)):
        squeue.write_text(f"#!/bin/sh\n{script}\n")
        squeue.chmod(0o755)
        with pytest.raises(error, match="Unable to contact") if error else nullcontext():
            run("tidy")
        assert server.members(12) == {1, 2, 17, 18}
    squeue.write_text("#!/bin/sh\necho 13\n")
    run("tidy")
    assert server.partitions == {}
    assert capsys.readouterr().out.endswith("job 12: its partition is deleted\n")
