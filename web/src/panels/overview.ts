// What is going on: alerts, jobs, the subnet manager.

import { sparkline } from "../chart";
import { fill, h } from "../dom";
import { alarm } from "../manners";
import type { Job, Suspect } from "../shapes";
import type { Store } from "../store";
import { count, gbits, percent, plain } from "../words";
import { mendButton } from "./cable";
import { facts } from "./facts";

export function overview(store: Store, element: HTMLElement): void {
  const alerts = h("section", { "aria-label": "Alerts" });
  const jobs = h("section", { "aria-label": "Jobs" });
  const manager = h("section", { "aria-label": "Subnet manager" });
  const what = h("section", { "aria-label": "Fabric" });
  fill(element, alerts, jobs, manager, what);
  let shown = "";
  store.on("live", () => {
    const suspects = store.live!.suspects;
    const key = JSON.stringify(suspects.map(({ link, kind, evidence }) => [link, kind, evidence]));
    if (key !== shown) {
      shown = key; // buttons are left alone while nothing is new
      fill(alerts, heading("Alerts", suspects.length), suspects.length ? suspects.map((one) => card(store, one)) : calm());
    }
    fill(jobs, heading("Jobs", store.live!.jobs.length), store.live!.jobs.length ? store.live!.jobs.map((job) => row(store, job)) : noJobs());
    fill(manager, h("h2", null, "Subnet manager"), managerOf(store));
  });
  store.on("model", () => fill(what, h("h2", null, "Fabric"), fabricOf(store)));
  watchAlarms(store);
}

function heading(text: string, number: number): HTMLElement {
  return h("h2", null, text, number ? h("span", { class: "count" }, number) : null);
}

function calm(): HTMLElement {
  return h("p", { class: "calm" }, "No cable is suspected.");
}

function noJobs(): HTMLElement {
  return h("p", { class: "faint" }, "None runs. Start one: ", h("code", null, "weft load"));
}

function card(store: Store, one: Suspect): HTMLElement {
  const link = store.model?.linkOf(one.link);
  const show = () => link !== undefined && (store.select({ kind: "link", link }), store.show("selected"));
  const impact = plain(one.impact);
  return h(
    "article",
    { class: "alert" },
    h("h3", null, h("span", { class: "kind" }, one.kind), h("button", { class: "name", type: "button", onclick: show }, one.link.join(" – "))),
    h("p", { class: "sure" }, `${percent(one.confidence)} sure`),
    h("ul", null, one.evidence.map((line) => h("li", null, line))),
    impact ? h("p", null, h("b", null, "Hit: "), impact) : null,
    h("p", null, h("b", null, "Do: "), one.action),
    link === undefined ? null : h("p", { class: "buttons" }, h("button", { type: "button", onclick: show }, "Show"), mendButton(store, one.link[0])),
  );
}

function row(store: Store, job: Job): HTMLElement {
  const share = job.gbit_s === null || !job.wanted_gbit_s ? null : job.gbit_s / job.wanted_gbit_s;
  const trace = store.traces.get(job.name);
  return h(
    "div",
    { class: "job" },
    h("div", null, h("b", null, job.name), h("span", { class: "faint" }, `${job.pattern}, ${count(job.hosts.length, "host")}`)),
    trace ? sparkline(trace, job.wanted_gbit_s) : null,
    h("div", { class: "rate" }, h("b", null, gbits(job.gbit_s)), h("span", { class: share !== null && share < 0.9 ? "low" : "faint" }, `${percent(share)} of ${gbits(job.wanted_gbit_s)}`)),
  );
}

function managerOf(store: Store): HTMLElement {
  const sm = store.live!.sm;
  if (!sm) return h("p", { class: "faint" }, "None is seen.");
  return facts([
    ["state", sm.state],
    ["runs on", sm.host],
    ["standby", sm.standby.join(", ") || "none: nobody takes over"],
    ["activity", sm.sweeps.toLocaleString("en")],
  ]);
}

function fabricOf(store: Store): HTMLElement {
  const model = store.model!;
  const tiers = new Map<string, number>();
  for (let node = 0; node < model.nodes; node++) {
    if (!model.isShown(node)) continue;
    const kind = model.isSwitch(node) ? `switches, tier ${model.fabric.nodes.tier[node]}` : "hosts";
    tiers.set(kind, (tiers.get(kind) ?? 0) + 1);
  }
  const rows = [...tiers].sort(([a], [b]) => b.localeCompare(a)).map(([kind, number]): [string, string] => [kind, number.toLocaleString("en")]);
  return facts([["built from", model.fabric.spec], ...rows, ["cables", model.links.toLocaleString("en")]]);
}

/** New alerts are said aloud, once. */
function watchAlarms(store: Store): void {
  let known = new Set<string>();
  store.on("live", () => {
    const now = new Map(store.live!.suspects.map((one) => [`${one.kind} ${one.link.join(" – ")}`, one]));
    const fresh = [...now.keys()].filter((key) => !known.has(key));
    if (fresh.length) alarm(`Alert: ${fresh.join("; ")}`);
    else if (known.size && !now.size) alarm("All alerts are cleared");
    known = new Set(now.keys());
  });
}
