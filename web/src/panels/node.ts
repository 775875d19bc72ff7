// The panel of a node: its ports, their counters and history.

import { messageOf } from "../api";
import { Chart } from "../chart";
import { fill, h } from "../dom";
import type { Fact, NodeDetail, Port, Series } from "../shapes";
import type { Store } from "../store";
import { short } from "../format";
import { changesOf } from "./changes";
import { facts } from "./facts";
import { removeButton } from "./whatif";

const EVERY_MS = 5000;
const SECONDS = 900;
const ERRORS = /error|downed|discard|violation|malformed|overrun|recovery/;

export function nodePanel(store: Store, node: number, element: HTMLElement): () => void {
  const model = store.model!;
  const name = model.name(node);
  const body = h("div", null, h("p", { class: "faint" }, "reading ports …"));
  const chart = new PortChart(store, name);
  const aim = (end: "from" | "to") => () => {
    element.dispatchEvent(new CustomEvent("aim", { bubbles: true, detail: { end, node } }));
  };
  fill(
    element,
    h("h2", { class: "big" }, name),
    h("p", { class: "faint" }, model.describe({ kind: "node", node })),
    model.isSwitch(node) ? null : h("p", { class: "buttons" }, serverButton(store, node), button("Path from here", aim("from")), button("Path to here", aim("to"))),
    removeButton(store, `dead:${name}`),
    body,
    chart.element,
    changesOf(store, [name]),
  );
  let asked = 0;
  return () => {
    if (store.mode === "past") {
      if (asked !== -store.at!) void loadPast(store, name, body, chart);
      asked = -store.at!;
      return;
    }
    if (asked > 0 && Date.now() - asked < EVERY_MS) return;
    asked = Date.now();
    void load(store, name, body, chart);
  };
}

function serverButton(store: Store, node: number): HTMLElement | null {
  const item = store.model!.itemOf(node);
  return item.kind === "server" ? button(`Server ${item.server}`, () => store.select(item)) : null;
}

function button(text: string, onclick: () => void): HTMLElement {
  return h("button", { type: "button", onclick }, text);
}

async function load(store: Store, name: string, body: HTMLElement, chart: PortChart): Promise<void> {
  try {
    const detail = await store.api.get<NodeDetail>(`/nodes/${encodeURIComponent(name)}`);
    if (store.mode === "past") return; // meanwhile
    const focused = document.activeElement?.getAttribute("data-port");
    const owner = store.ownerOf(store.model!.index.get(name)!);
    const rows: [string, HTMLElement | string][] = [["GUID", h("code", null, detail.guid)], ...(owner ? [["tenant", owner] as [string, string]] : [])];
    fill(body, facts(rows), table(store, detail, chart));
    if (focused) body.querySelector<HTMLElement>(`[data-port="${focused}"]`)?.focus(); // restore the focus after the update
    chart.refresh(detail.ports);
  } catch (error) {
    fill(body, h("p", { class: "problem" }, messageOf(error)));
  }
}

/** The facts of the shown moment: recorded counters are those of errors. */
async function loadPast(store: Store, name: string, body: HTMLElement, chart: PortChart): Promise<void> {
  chart.element.hidden = true;
  try {
    const found = await store.api.get<Fact[]>(`/facts?${new URLSearchParams({ at: String(store.at), name })}`);
    const rows = found.map((fact) => h("tr", null, h("td", null, fact.name), h("td", null, fact.kind), h("td", null, fact.value)));
    const heads = ["name", "fact", "value then"].map((text) => h("th", { scope: "col" }, text));
    fill(body, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Facts" }, h("table", null, h("thead", null, h("tr", null, heads)), h("tbody", null, rows))));
  } catch (error) {
    fill(body, h("p", { class: "problem" }, messageOf(error)));
  }
}

function table(store: Store, detail: NodeDetail, chart: PortChart): HTMLElement {
  const rows = detail.ports.map((port) => {
    const isActive = /active|up/i.test(port.state);
    const link = store.model!.linkAt(`${detail.name}/${port.number}`);
    return h(
      "tr",
      { class: isActive ? "" : "off" },
      h("td", null, h("button", { type: "button", class: "name", "data-port": port.number, "aria-label": `port ${port.number}: counters`, onclick: () => chart.choose(port.number) }, port.number)),
      h("td", null, port.peer ? h("button", { type: "button", class: "name", "data-port": `peer${port.number}`, onclick: () => link !== undefined && store.select({ kind: "link", link }) }, port.peer) : h("span", { class: "faint" }, "no cable")),
      h("td", null, isActive ? port.rate : h("span", { class: "state down" }, port.state)),
      h("td", { class: "number" }, sends(port)),
      h("td", { class: "number" }, errors(port)),
    );
  });
  const heads = ["port", "to", "rate", "sends", "errors"].map((text) => h("th", { scope: "col" }, text));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ports" }, h("table", null, h("thead", null, h("tr", null, heads)), h("tbody", null, rows)));
}

/** The service sends only rates that are not 0, and known counters. */
function sends(port: Port): string {
  const words = port.rates.port_xmit_data_words ?? (port.counters.port_xmit_data_words === undefined ? null : 0);
  return words === null ? "unknown" : words === 0 ? "0" : `${short(4 * words)}B/s`;
}

function errors(port: Port): HTMLElement | string {
  let sum = 0;
  for (const [name, value] of Object.entries(port.counters)) if (ERRORS.test(name)) sum += value;
  return sum ? h("b", { class: "bad" }, sum.toLocaleString("en")) : "0";
}

/** Data counters first, then counters that are not 0, then the rest. */
function ordered(port: Port): string[] {
  const rank = (name: string) => (name === "port_xmit_data_words" ? 0 : name === "port_rcv_data_words" ? 1 : port.counters[name] ? 2 : 3);
  return Object.keys(port.counters).sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

/** Data is counted in words of four bytes. */
function unitOf(counter: string): number {
  return counter.endsWith("_words") ? 4 : 1;
}

function spoken(counter: string): string {
  return counter.replace(/_words$/, " bytes").replaceAll("_", " ");
}

/** The counters of a port, and the history of one of them. */
class PortChart {
  readonly element = h("section", { hidden: true, "aria-label": "Counters of a port" });
  readonly #title = h("h3");
  readonly #which = h("select", { "aria-label": "Counter" });
  readonly #plot = h("div", { class: "plot" });
  readonly #numbers = h("div");
  readonly #chart = new Chart(this.#plot);
  #number: number | null = null;
  #ports: Port[] = [];

  constructor(
    readonly store: Store,
    readonly name: string,
  ) {
    fill(this.element, h("div", { class: "split" }, this.#title, this.#which), this.#plot, this.#numbers);
    this.#which.addEventListener("change", () => void this.#draw());
  }

  choose(number: number): void {
    this.#number = number;
    this.element.hidden = false;
    this.#title.textContent = `${this.name}/${number}`;
    this.refresh(this.#ports);
    this.element.scrollIntoView({ block: "nearest" });
  }

  refresh(ports: Port[]): void {
    this.#ports = ports;
    const port = ports.find((one) => one.number === this.#number);
    if (!port) return;
    const names = ordered(port);
    if (this.#which.options.length !== names.length) {
      fill(this.#which, names.map((name) => h("option", { value: name }, spoken(name))));
    }
    const moved = names.filter((name) => port.counters[name] !== 0);
    const rows = moved.map((name): [string, string] => [spoken(name), (port.counters[name] * unitOf(name)).toLocaleString("en")]);
    const still: [string, string][] = moved.length < names.length ? [["others", `0, all ${names.length - moved.length}`]] : [];
    const lid = port.lid ? String(port.lid) : "none";
    fill(this.#numbers, facts([["LID", lid], ["P_Keys", port.pkeys.join(", ") || "none"], ...rows, ...still]));
    void this.#draw();
  }

  async #draw(): Promise<void> {
    const counter = this.#which.value;
    try {
      const query = new URLSearchParams({ port: `${this.name}/${this.#number}`, counter, seconds: String(SECONDS) });
      const series = await this.store.api.get<Series>(`/history?${query}`);
      if (series.t.length < 2) fill(this.#plot, h("p", { class: "faint" }, "No history yet."));
      else this.#chart.show({ t: series.t, v: series.v.map((v) => v && v * unitOf(counter)) }, unitOf(counter) > 1 ? "B/s" : "/s");
    } catch (error) {
      fill(this.#plot, h("p", { class: "faint" }, messageOf(error)));
    }
  }
}
