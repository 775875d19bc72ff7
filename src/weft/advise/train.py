"""The training workload: the fastest layout on each fabric, simulated as flows; in closed form at other points."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from weft.advise.case import Case
from weft.advise.workloads import Option, Progress, Timed, Work, fabric_of, ideal_of, store_of, transfer_s
from weft.collectives.interconnect import options_of, template_of
from weft.collectives.nccl.cluster import from_server
from weft.errors import ConfigError
from weft.training.cabled import Inside
from weft.training.communication import Ideal
from weft.training.gpu import Gpu
from weft.training.job import run_job
from weft.training.memory import footprint
from weft.training.parallel import Layout, check
from weft.training.search import search
from weft.training.site import Site
from weft.training.step import Step, run_step
from weft.training.storage import checkpoint_bytes
from weft.training.transformer import Transformer, find

CHECKPOINT_EVERY_S = 1_800  # the job waits while a checkpoint is written
_SHORTLIST = 8  # layouts of a search to try at other points, each with different tp, pp and ZeRO stage


class Training(Work):
    """The training workload. Layouts are searched once over RDMA and once over TCP, which prefer different ones."""

    def __init__(self, case: Case, progress: Progress | None = None) -> None:
        super().__init__(case)
        self._progress = progress
        self._found: dict[tuple[bool, int, int], list[Layout]] = {}
        self._shortlist: dict[bool, list[Layout]] = {}  # over TCP, or not
        self._steps: dict[tuple[Option, int, int], Step] = {}

    @cached_property
    def transformer(self) -> Transformer:
        return find(self.case.chosen_model)

    @cached_property
    def gpu(self) -> Gpu:
        return Gpu.of_server(self.case.template)

    def run(self, option: Option) -> Timed:
        case = self._job(self.case)
        run = run_job(self.transformer, self._fastest(option, case).layout, self._site(option, case))
        step, written_s = run.step, 0.0
        if option.storage != "none" and case.servers > 1:
            written_s = store_of(option, case).write(checkpoint_bytes(step.layout, self.transformer)).seconds
        timed = self._timed(step, case, written_s)
        return replace(timed, band_s=run.band.around(timed.seconds))

    def guess(self, option: Option, case: Case) -> Timed:
        case = self._job(case)
        step = self._fastest(option, case)
        written_s = 0.0
        if option.storage != "none" and case.servers > 1:
            sizes = checkpoint_bytes(step.layout, self.transformer)
            written_s = transfer_s(option, case, float(sizes.sum()), float(sizes.max()), "write_gbyte_s")
        return self._timed(step, case, written_s)

    def units_of_work(self, case: Case) -> float:
        return float(case.batch(self.transformer.seq) * self.transformer.seq) / 1e9

    def _job(self, case: Case) -> Case:
        """Return the case of one job: a single server if jobs stay within a server."""
        return replace(case, servers=1) if case.work.name == "single-node" else case

    def _site(self, option: Option, case: Case) -> Site:
        """Return the site with the fabric that is billed."""
        fabric = fabric_of(option.interconnect, case.server, case.servers)
        return Site(
            name=option.interconnect.name,
            fabric=fabric,
            template=template_of(fabric),
            servers=case.servers,
            options=options_of(option.interconnect, case.seed),
            interconnect=option.interconnect,
        )

    def _timed(self, step: Step, case: Case, written_s: float) -> Timed:
        inside = Inside(from_server(case.server, nodes=case.servers), step.layout)
        free = run_step(self.transformer, step.layout, self.gpu, inside)
        return Timed(seconds=step.step_s * (1 + written_s / CHECKPOINT_EVERY_S), free_s=free.step_s)

    def _fastest(self, option: Option, case: Case) -> Step:
        """Return the fastest step in closed form, over the layouts that divide and fit there."""
        point = option, case.servers, case.batch(self.transformer.seq)
        if point not in self._steps:
            self._steps[point] = self._fastest_of(option, case)
        return self._steps[point]

    def _fastest_of(self, option: Option, case: Case) -> Step:
        card = case.template.card_for(option.interconnect)
        cluster = from_server(case.template.equipped(card).name, nodes=case.servers)
        networks = ideal_of(option.interconnect, case) if case.servers > 1 else None
        steps = [
            run_step(self.transformer, layout, self.gpu, Ideal(cluster, layout, networks))
            for layout in self._layouts(option, case)
        ]
        return min(steps, key=lambda step: step.step_s)

    def _layouts(self, option: Option, case: Case) -> list[Layout]:
        """Return the shortlist of the case scaled to this point; search again where none of it fits."""
        over_tcp = option.interconnect.network == "tcp"
        point = over_tcp, case.servers, case.batch(self.transformer.seq)
        if point not in self._found:
            fitting = self._cut(self._shortlist.get(over_tcp, []), case)
            self._found[point] = fitting or self._search(option, case)
            self._shortlist.setdefault(over_tcp, self._found[point])
        return self._found[point]

    def _cut(self, layouts: list[Layout], case: Case) -> list[Layout]:
        fitting = []
        for layout in layouts:
            try:
                cut = replace(layout, gpus=case.gpus, global_batch=case.batch(self.transformer.seq))
                check(cut, self.transformer)
            except ConfigError:
                continue
            if footprint(cut, self.transformer).fits(self.gpu.entry.memory_gbyte):
                fitting.append(cut)
        return fitting

    def _search(self, option: Option, case: Case) -> list[Layout]:
        """Return the best layout for each tp, pp and ZeRO stage; the first is the one of `weft plan --train`."""
        if self._progress is not None:
            self._progress(f"layouts of {self.transformer.name} on {case.gpus:,} GPUs, {option.interconnect.name}")
        fixed = {"global_batch": case.batch(self.transformer.seq), "seq": self.transformer.seq}
        ways: dict[tuple[int, int, int], Layout] = {}
        try:
            fitting = search(self.transformer, self._site(option, case), fixed)
        except ConfigError as error:
            raise ConfigError(f"{error}\n  Or give a smaller --model.") from error
        for candidate in fitting:
            ways.setdefault((candidate.layout.tp, candidate.layout.pp, candidate.layout.zero), candidate.layout)
        return list(ways.values())[:_SHORTLIST]
