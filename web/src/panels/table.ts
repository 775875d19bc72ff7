// The cables as a table, worst first: for who reads by ear, and where nothing can be drawn.

import { fill, h } from "../dom";
import { fits } from "../model";
import type { Store } from "../store";
import { count, percent } from "../words";

const MOST = 100;

export function table(store: Store, element: HTMLElement): void {
  const said = h("p", { class: "faint" });
  const body = h("tbody");
  const heads = ["cable", "state", "load", "errors"].map((text) => h("th", { scope: "col" }, text));
  fill(element, said, h("table", null, h("caption", { class: "unseen" }, "Cables"), h("thead", null, h("tr", null, heads)), body));
  const rows: HTMLTableRowElement[] = [];
  const show = () => {
    if (store.tab !== "table" || !store.model || !store.live || !fits(store.model, store.live)) return;
    const worst = rank(store).slice(0, MOST);
    said.textContent = `${count(store.model.links, "cable")}; the first ${worst.length} by ${store.measure === "errors" ? "errors" : "load"}, those that are down or bad on top.`;
    while (rows.length < worst.length) rows.push(body.appendChild(h("tr")));
    worst.forEach((link, i) => fill(rows[i], cells(store, link)));
  };
  store.on(["live", "measure", "tab", "line"], show);
}

function rank(store: Store): number[] {
  const { load, errors, state } = store.live!.links;
  const values = store.measure === "errors" ? errors : load;
  const score = (link: number) => (state[link] === "up" ? 0 : 1e12) + (values[link] ?? -1);
  return Array.from(load, (_, link) => link).sort((a, b) => score(b) - score(a));
}

function cells(store: Store, link: number): HTMLElement[] {
  const { load, errors, state } = store.live!.links;
  const show = () => (store.select({ kind: "link", link }), store.show("selected"));
  return [
    h("td", null, h("button", { type: "button", class: "name", onclick: show }, store.model!.ports(link).join(" – "))),
    h("td", null, h("span", { class: `state ${state[link]}` }, store.isFresh ? state[link] : "unknown")),
    h("td", { class: "number" }, percent(store.isFresh ? load[link] : null)),
    h("td", { class: "number" }, !store.isFresh || errors[link] === null ? "unknown" : errors[link]!.toLocaleString("en")),
  ];
}
