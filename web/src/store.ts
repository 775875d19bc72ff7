// The state of the page, and its listeners.

import { Api } from "./api";
import type { Item, Model } from "./model";
import type { Live, LogLine, Route } from "./shapes";

export type Measure = "load" | "errors" | "tenant";
export type Selection = Item | { kind: "link"; link: number } | null;
export type Tab = "overview" | "selected" | "path" | "tenants" | "runs" | "log" | "table";
type Topic = "model" | "live" | "select" | "route" | "measure" | "tenants" | "log" | "line" | "theme" | "tab";

const MOST_LINES = 500;
export const TRACE_S = 180; // history of the jobs' rates

export interface Trace {
  t: number[];
  v: (number | null)[];
}

export class Store {
  readonly api = new Api();
  model: Model | null = null;
  live: Live | null = null;
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
    return this.isUp && !this.live?.trouble;
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
    this.live = live;
    this.#trace(live);
    this.tell("live");
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
