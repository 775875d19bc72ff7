// The state of the page, and its listeners.

import { Api } from "./api";
import type { Item, Model } from "./model";
import type { Live, LogLine, PastEvent, Route } from "./shapes";

export type Measure = "load" | "errors" | "tenant";
export type Selection = Item | { kind: "link"; link: number } | null;
export type Mode = "now" | "past" | "model";
export type Tab = "overview" | "selected" | "history" | "whatif" | "path" | "tenants" | "runs" | "log" | "table";
type Topic = "model" | "live" | "select" | "route" | "measure" | "tenants" | "log" | "line" | "theme" | "tab" | "mode" | "past" | "faults";

const MOST_LINES = 500;
export const TRACE_S = 180; // history of the jobs' rates

export interface Trace {
  t: number[];
  v: (number | null)[];
}

export class Store {
  readonly api = new Api();
  model: Model | null = null;
  live: Live | null = null; // the shown state
  present: Live | null = null; // the newest state
  mode: Mode = "now";
  at: number | null = null; // the shown time in the past
  events: PastEvent[] = []; // recorded
  hasHistory = false;
  faults: string[] = []; // of the model: cut:leaf1/5, dead:spine1
  isUp = false; // the stream is connected
  why = ""; // why it is not connected
  selection: Selection = null;
  route: Route | null = null;
  lit: number[] = []; // links of the highlighted path
  measure: Measure = "load";
  tab: Tab = "overview";
  tenantOf = new Map<string, string>(); // host -> tenant
  tenantNames: string[] = [];
  readonly log: LogLine[] = [];
  readonly traces = new Map<string, Trace>(); // job -> its rate
  readonly #heard = new Map<Topic, (() => void)[]>();

  /** Whether the state of the links is current. */
  get isFresh(): boolean {
    return this.mode !== "now" || (this.isUp && !this.live?.trouble);
  }

  /** The tenant of a host or of its server. */
  ownerOf(node: number): string | undefined {
    const { name, server } = this.model!.fabric.nodes;
    return this.tenantOf.get(name[node]) ?? this.tenantOf.get(server[node]);
  }

  on(topics: Topic | Topic[], listener: () => void): void {
    for (const topic of [topics].flat()) this.#heard.set(topic, [...(this.#heard.get(topic) ?? []), listener]);
  }

  tell(topic: Topic): void {
    for (const listener of this.#heard.get(topic) ?? []) listener();
  }

  select(selection: Selection): void {
    this.selection = selection;
    this.tell("select");
  }

  selectNode(name: string): void {
    const node = this.model?.index.get(name);
    if (node !== undefined) this.select({ kind: "node", node });
  }

  show(tab: Tab): void {
    this.tab = tab;
    this.tell("tab");
  }

  setLive(live: Live): void {
    this.present = live;
    this.#trace(live);
    if (this.mode === "past") return;
    this.live = this.mode === "model" ? this.#modelled(live) : live;
    this.tell("live");
  }

  /** Begin a model of the present, which clicks change instead of the fabric. */
  startModel(): void {
    this.mode = "model";
    this.api.refusal = "this is the model: leave it to change the fabric";
    this.tell("mode");
    this.setFaults([]);
  }

  leaveModel(): void {
    this.mode = "now";
    this.faults = [];
    this.api.refusal = "";
    this.live = this.present;
    this.tell("mode");
    this.tell("faults");
    this.tell("live");
  }

  setFaults(faults: string[]): void {
    this.faults = faults;
    if (this.present) this.live = this.#modelled(this.present);
    this.tell("faults");
    this.tell("live");
  }

  /** The state of the model: removed cables are down, and no load is known. */
  #modelled(live: Live): Live {
    const model = this.model!;
    const gone = new Set(this.faults);
    const { a, b } = model.fabric.links;
    const isGone = (link: number) =>
      model.ports(link).some((port) => gone.has(`cut:${port}`)) || [a[link], b[link]].some((node) => gone.has(`dead:${model.name(node)}`));
    const none = live.links.load.map(() => null);
    const state = live.links.state.map((now, link) => (isGone(link) ? "down" : now));
    return { ...live, links: { load: none, errors: none, wait: none, state } };
  }

  /** Show a recorded state; `model` if its drawing differs from the shown one. */
  showPast(live: Live, at: number, model: Model | null): void {
    this.mode = "past";
    this.at = at;
    this.api.refusal = "this is the past: go back to now to change something";
    this.live = live;
    if (this.route) this.setRoute(null); // paths are of now
    if (model) this.#replace(model);
    this.tell("mode");
    this.tell("live");
  }

  leavePast(): void {
    this.mode = "now";
    this.at = null;
    this.api.refusal = "";
    this.live = this.present;
    this.tell("mode");
  }

  /** Show another drawing, with the same selection if it has it. */
  #replace(model: Model): void {
    const name = this.selection && this.selection.kind !== "link" ? this.model!.nameOf(this.selection) : "";
    const ports = this.selection?.kind === "link" ? this.model!.ports(this.selection.link) : [];
    this.model = model;
    const node = model.index.get(name);
    const link = model.linkOf(ports);
    this.selection = node !== undefined ? { kind: "node", node } : link !== undefined ? { kind: "link", link } : null;
    this.tell("model");
  }

  setRoute(route: Route | null): void {
    this.route = route;
    this.lit = [];
    for (const hop of route?.hops ?? []) {
      const link = hop.out_port ? this.model?.linkAt(`${hop.node}/${hop.out_port}`) : undefined;
      if (link !== undefined) this.lit.push(link);
    }
    this.tell("route");
  }

  note(line: LogLine): void {
    const last = this.log[0];
    if (last && last.t === line.t && last.text === line.text) return; // repeated after a reconnect
    this.log.unshift(line);
    this.log.length = Math.min(this.log.length, MOST_LINES);
    this.tell("log");
  }

  /** Handle a lost stream: the state is outdated, and charts get a gap. */
  lose(why: string): void {
    this.isUp = false;
    this.why = why;
    for (const trace of this.traces.values()) push(trace, Date.now() / 1000, null);
    this.tell("line");
  }

  regain(): void {
    this.isUp = true;
    this.tell("line");
  }

  #trace(live: Live): void {
    for (const job of live.jobs) {
      const trace = this.traces.get(job.name) ?? { t: [], v: [] };
      this.traces.set(job.name, trace);
      push(trace, live.t, job.gbit_s);
    }
    for (const name of this.traces.keys()) if (!live.jobs.some((job) => job.name === name)) this.traces.delete(name);
  }
}

function push(trace: Trace, t: number, v: number | null): void {
  trace.t.push(t);
  trace.v.push(v);
  while (trace.t.length && trace.t[0] < t - TRACE_S) {
    trace.t.shift();
    trace.v.shift();
  }
}
