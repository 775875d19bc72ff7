// The panel of a server: its adapters, with the state and load of their cables.

import { fill, h } from "../dom";
import { count, percent } from "../format";
import { fits } from "../model";
import type { Store } from "../store";
import { facts } from "./facts";

export function serverPanel(store: Store, server: string, element: HTMLElement): () => void {
  const model = store.model!;
  const adapters = model.servers.get(server)!;
  const owner = store.ownerOf(adapters[0]);
  const heads = ["adapter", "to", "state", "load", "errors"].map((text) => h("th", { scope: "col" }, text));
  const rows = adapters.flatMap((node) => [...model.linksOf(node)].map((link) => new Row(store, node, link)));
  fill(
    element,
    h("h2", { class: "big" }, server),
    h("p", { class: "faint" }, `server, ${count(adapters.length, "adapter")}`),
    owner ? facts([["tenant", owner]]) : null,
    h("table", null, h("caption", { class: "unseen" }, "Adapters"), h("thead", null, h("tr", null, heads)), h("tbody", null, rows.map((row) => row.element))),
  );
  return () => rows.forEach((row) => row.show());
}

/** A cable of an adapter, created once so that it keeps the focus. */
class Row {
  readonly element: HTMLElement;
  readonly #cells = [h("td"), h("td", { class: "number" }), h("td", { class: "number" })];

  constructor(
    readonly store: Store,
    node: number,
    readonly link: number,
  ) {
    const model = store.model!;
    const button = (text: string, onclick: () => void) => h("button", { type: "button", class: "name", onclick }, text);
    const [near, far] = model.fabric.links.a[link] === node ? model.ports(link) : model.ports(link).reverse();
    const adapter = button(near.split("/").slice(1, -1).join("/") || near, () => store.select({ kind: "node", node }));
    this.element = h("tr", null, h("td", null, adapter), h("td", null, button(far, () => store.select({ kind: "link", link }))), this.#cells);
  }

  show(): void {
    const { model, live, isFresh } = this.store;
    const links = isFresh && live && fits(model!, live) ? live.links : null;
    const state = links?.state[this.link] ?? "unknown";
    fill(this.#cells[0], h("span", { class: `state ${state}` }, state));
    fill(this.#cells[1], percent(links?.load[this.link]));
    fill(this.#cells[2], links?.errors[this.link]?.toLocaleString("en") ?? "unknown");
  }
}
