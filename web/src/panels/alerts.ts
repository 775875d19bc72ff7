// Alerts: a card for each suspect, updated in place; new ones are announced to screen readers once.

import { fill, h, say } from "../dom";
import { alarm } from "../accessibility";
import type { Suspect } from "../shapes";
import type { Store } from "../store";
import { plain, sure } from "../format";
import { Acknowledge } from "./acknowledge";
import { repairButton } from "./cable";

const FIRST = 2; // lines of evidence shown by default

export class Cards {
  readonly #count = h("span", { class: "count" });
  readonly #calm = h("p", { class: "calm" }, "No suspected cables.");
  readonly #list = h("div");
  readonly #cards = new Map<string, Card>();

  constructor(
    readonly store: Store,
    element: HTMLElement,
  ) {
    fill(element, h("h2", null, "Alerts", this.#count), this.#calm, this.#list);
    this.show([]);
  }

  show(suspects: Suspect[]): void {
    const had = this.#cards.size;
    const now = new Map(suspects.map((one) => [`${one.kind} ${one.link.join(" – ")}`, one]));
    const fresh = [...now.keys()].filter((key) => !this.#cards.has(key));
    for (const [key, card] of this.#cards) {
      if (now.has(key)) continue;
      card.element.remove();
      this.#cards.delete(key);
    }
    for (const [key, one] of now) {
      const card = this.#cards.get(key) ?? new Card(this.store, one);
      this.#cards.set(key, card);
      card.show(one);
      if (!card.element.isConnected) this.#list.append(card.element);
    }
    this.#calm.hidden = suspects.length > 0;
    const open = suspects.filter((one) => !one.acknowledged).length;
    this.#count.hidden = open === 0;
    say(this.#count, String(open));
    if (fresh.length) alarm(`Alert: ${fresh.join("; ")}`);
    else if (had && !now.size) alarm("All alerts are cleared");
  }
}

class Card {
  readonly element = h("article", { class: "alert" });
  readonly #sure = h("p", { class: "sure" });
  readonly #first = h("ul");
  readonly #rest = h("ul");
  readonly #more = h("details", null, h("summary", null, "more evidence"), this.#rest);
  readonly #impact = h("p");
  readonly #action = h("span");
  readonly #acknowledge: Acknowledge;

  constructor(store: Store, one: Suspect) {
    const show = () => {
      const link = store.model?.linkOf(one.link);
      if (link !== undefined) store.select({ kind: "link", link });
    };
    this.#acknowledge = new Acknowledge(store, one.id);
    const name = h("button", { class: "name", type: "button", onclick: show }, one.link.join(" – "));
    const repair = h("span", { class: "acts" }, repairButton(store, one.link[0]));
    const buttons = h("p", { class: "buttons" }, h("button", { type: "button", onclick: show }, "Show"), repair);
    fill(
      this.element,
      h("h3", null, h("span", { class: "kind" }, one.kind), name),
      this.#sure,
      h("div", null, this.#first, this.#more),
      this.#impact,
      h("p", null, h("b", null, "Action: "), this.#action),
      buttons,
      this.#acknowledge.element,
    );
  }

  show(one: Suspect): void {
    say(this.#sure, sure(one.confidence));
    write(this.#first, one.evidence.slice(0, FIRST));
    write(this.#rest, one.evidence.slice(FIRST));
    this.#more.hidden = one.evidence.length <= FIRST;
    const impact = plain(one.impact);
    this.#impact.hidden = !impact;
    say(this.#impact, `Impact: ${impact}`);
    say(this.#action, one.action);
    this.element.classList.toggle("acknowledged", one.acknowledged !== null);
    this.#acknowledge.show(one.acknowledged);
  }
}

function write(list: HTMLUListElement, lines: string[]): void {
  while (list.children.length > lines.length) list.lastElementChild!.remove();
  lines.forEach((line, i) => say(list.children[i] ?? list.appendChild(h("li")), line));
}
