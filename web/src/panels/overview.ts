// The overview: alerts, jobs, the subnet manager.

import { sparkline } from "../chart";
import { fill, h } from "../dom";
import type { Job } from "../shapes";
import type { Store } from "../store";
import { count, gbits, percent, standbys } from "../format";
import { Cards } from "./alerts";
import { facts } from "./facts";

export function overview(store: Store, element: HTMLElement): void {
  const alerts = h("section", { "aria-label": "Alerts" });
  const jobs = h("section", { "aria-label": "Jobs" });
  const manager = h("section", { "aria-label": "Subnet manager" });
  const what = h("section", { "aria-label": "Fabric" });
  fill(element, alerts, jobs, manager, what);
  const cards = new Cards(store, alerts);
  store.on("live", () => {
    cards.show(store.live!.suspects);
    fill(jobs, h("h2", null, "Jobs"), store.live!.jobs.length ? store.live!.jobs.map((job) => row(store, job)) : noJobs());
    fill(manager, h("h2", null, "Subnet manager"), managerOf(store), driftOf(store));
  });
  store.on("model", () => fill(what, h("h2", null, "Fabric"), fabricOf(store)));
}

function noJobs(): HTMLElement {
  return h("p", { class: "faint" }, "No job is running. Start one: ", h("code", null, "weft load"));
}

function row(store: Store, job: Job): HTMLElement {
  const share = job.gbit_s === null || !job.wanted_gbit_s ? null : job.gbit_s / job.wanted_gbit_s;
  const trace = store.mode === "past" ? undefined : store.traces.get(job.name);
  return h(
    "div",
    { class: "job" },
    h("div", null, h("b", null, job.name), h("span", { class: "faint" }, `${job.pattern}, ${count(job.hosts.length, store.model?.servers.size ? "adapter" : "host")}`)),
    trace ? sparkline(trace, job.wanted_gbit_s) : null,
    h("div", { class: "rate" }, h("b", null, gbits(job.gbit_s)), h("span", { class: share !== null && share < 0.9 ? "low" : "faint" }, `${percent(share)} of ${gbits(job.wanted_gbit_s)}`)),
  );
}

function driftOf(store: Store): HTMLElement | null {
  const drift = store.live!.drift ?? [];
  return drift.length ? h("p", { class: "problem", role: "alert" }, `Differs from the ledger: ${drift.join("; ")}`) : null;
}

function managerOf(store: Store): HTMLElement {
  const sm = store.live!.sm;
  if (!sm) return h("p", { class: "faint" }, "No subnet manager answers.");
  return facts([
    ["state", sm.state],
    ["runs on", sm.host],
    ["standby", standbys(sm.standby)],
    ["activity count", sm.sweeps.toLocaleString("en")],
  ]);
}

function fabricOf(store: Store): HTMLElement {
  const model = store.model!;
  const tiers = new Map<string, number>();
  for (let node = 0; node < model.nodes; node++) {
    if (!model.isShown(node)) continue;
    const kind = model.isSwitch(node) ? `switches, tier ${model.fabric.nodes.tier[node]}` : model.servers.size ? "adapters" : "hosts";
    tiers.set(kind, (tiers.get(kind) ?? 0) + 1);
  }
  if (model.servers.size) tiers.set("servers", model.servers.size);
  const rows = [...tiers].sort(([a], [b]) => b.localeCompare(a)).map(([kind, number]): [string, string] => [kind, number.toLocaleString("en")]);
  return facts([["built from", model.fabric.spec], ...rows, ["cables", model.links.toLocaleString("en")]]);
}
