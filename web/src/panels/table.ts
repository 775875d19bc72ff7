// The cables as a table, worst first: for screen readers, and for browsers without WebGL.

import { fill, h, say } from "../dom";
import { fits } from "../model";
import type { Store } from "../store";
import { count, percent } from "../format";

const FIRST = 100; // rows at first; doubled on request

export function table(store: Store, element: HTMLElement): void {
  const said = h("p", { class: "faint" });
  const body = h("tbody");
  const more = h("button", { type: "button", onclick: () => ((most *= 2), show(true)) });
  const heads = ["cable", "state", "load", "errors", "tenant"].map((text) => h("th", { scope: "col" }, text));
  fill(element, said, h("table", null, h("caption", { class: "unseen" }, "Cables"), h("thead", null, h("tr", null, heads)), body), more);
  const rows: Row[] = [];
  let most = FIRST;
  const show = (isAsked: boolean) => {
    const model = store.model;
    if (store.tab !== "table" || !model || !store.live || !fits(model, store.live)) return;
    const isRead = body.contains(document.activeElement) && rows.every((row) => row.link < model.links);
    if (!isRead || isAsked) {
      const worst = rank(store).slice(0, most); // the order is kept during keyboard navigation
      while (rows.length < worst.length) rows.push(new Row(store, body));
      while (rows.length > worst.length) rows.pop()!.element.remove();
      worst.forEach((link, i) => (rows[i].link = link));
    }
    for (const row of rows) row.show();
    const by = store.measure === "errors" ? "errors" : "load";
    say(said, `${count(model.links, "cable")}; the first ${rows.length.toLocaleString("en")} by ${by}, with down and suspected ones on top.`);
    say(more, `Show ${Math.min(most, model.links - rows.length).toLocaleString("en")} more`);
    more.hidden = rows.length === model.links;
  };
  store.on(["live", "measure", "tab", "line", "tenants"], () => show(false));
}

function rank(store: Store): number[] {
  const { load, errors, state } = store.live!.links;
  const values = store.measure === "errors" ? errors : load;
  const score = (link: number) => (state[link] === "up" ? 0 : 1e12) + (values[link] ?? -1);
  return Array.from(load, (_, link) => link).sort((a, b) => score(b) - score(a));
}

/** A row, created once so that it keeps the focus. */
class Row {
  link = 0;
  readonly element = h("tr");
  readonly #name: HTMLElement;
  readonly #state = h("span");
  readonly #cells = [h("td", { class: "number" }), h("td", { class: "number" }), h("td")];

  constructor(
    readonly store: Store,
    body: HTMLElement,
  ) {
    const choose = () => (store.select({ kind: "link", link: this.link }), store.show("selected"));
    this.#name = h("button", { type: "button", class: "name", onclick: choose });
    fill(this.element, h("td", null, this.#name), h("td", null, this.#state), this.#cells);
    body.append(this.element);
  }

  show(): void {
    const { model, live, isFresh } = this.store;
    const { load, errors, state } = live!.links;
    const link = this.link;
    const [a, b] = [model!.fabric.links.a[link], model!.fabric.links.b[link]];
    const unknown = !isFresh || errors[link] === null;
    say(this.#name, model!.ports(link).join(" – "));
    say(this.#state, isFresh ? state[link] : "unknown");
    this.#state.className = `state ${state[link]}`;
    say(this.#cells[0], percent(isFresh ? load[link] : null));
    say(this.#cells[1], unknown ? "unknown" : errors[link]!.toLocaleString("en"));
    say(this.#cells[2], this.store.ownerOf(a) ?? this.store.ownerOf(b) ?? "");
  }
}
