// A field that finds servers and nodes by name, for the search and for the ends of a path.

import { fill, h } from "./dom";
import type { Item, Model } from "./model";
import type { Store } from "./store";
import { natural } from "./format";

const MOST = 8;
let made = 0;

export interface Field {
  element: HTMLElement;
  input: HTMLInputElement;
}

export function nodeField(store: Store, label: string, hint: string, chosen: (item: Item) => void, hostsOnly = false): Field {
  const id = `found-${++made}`;
  const input = h("input", {
    type: "text",
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    enterkeyhint: "search",
    placeholder: hint,
    "aria-label": label,
    "aria-controls": id,
    "aria-expanded": "false",
    "aria-autocomplete": "list",
  });
  const list = h("ul", { id, role: "listbox", "aria-label": label, hidden: true });
  const element = h("div", { class: "field" }, input, list);
  let hits: Item[] = [];
  let at = 0;

  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const choose = (item: Item) => {
    input.value = store.model!.nameOf(item);
    close();
    chosen(item);
  };
  const mark = () => {
    [...list.children].forEach((one, i) => one.setAttribute("aria-selected", String(i === at)));
    if (hits.length) input.setAttribute("aria-activedescendant", `${id}-${at}`);
  };
  const open = () => {
    if (!store.model) return;
    hits = find(store.model, input.value.trim(), hostsOnly);
    at = 0;
    const rows = hits.map((item, i) =>
      h(
        "li",
        { id: `${id}-${i}`, role: "option", onpointerdown: (event: Event) => (event.preventDefault(), choose(item)) },
        h("b", null, store.model!.nameOf(item)),
        h("span", null, store.model!.describe(item)),
      ),
    );
    fill(list, rows.length ? rows : h("li", { class: "none" }, "no node has this name"));
    list.hidden = input.value.trim() === "";
    input.setAttribute("aria-expanded", String(!list.hidden));
    mark();
  };
  input.addEventListener("input", open);
  input.addEventListener("focus", () => input.select());
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (list.hidden) return open();
      at = (at + (event.key === "ArrowDown" ? 1 : hits.length - 1)) % Math.max(hits.length, 1);
      mark();
    } else if (event.key === "Enter") {
      if (list.hidden) open();
      if (hits.length) choose(hits[at]);
    } else if (event.key === "Escape") {
      if (list.hidden) input.blur();
      close();
      event.stopPropagation();
      return;
    } else return;
    event.preventDefault();
  });
  return { element, input };
}

/**
 * Exact match, then prefix, then substring; a port such as leaf1/5 finds its node. Adapters of a server are found by a text
 * with a slash, by a text that no server or other node has, and where only hosts are allowed.
 */
export function find(model: Model, text: string, hostsOnly = false): Item[] {
  const wanted = text.toLowerCase();
  if (!wanted) return [];
  const nodes = model.shown().filter((node) => !(hostsOnly && model.isSwitch(node)));
  const items = [...model.servers.keys()].map((server): Item => ({ kind: "server", server }));
  items.push(...nodes.map((node) => model.itemOf(node)).filter((item) => item.kind === "node"));
  const hits = hostsOnly || wanted.includes("/") ? [] : best(model, items, wanted);
  return hits.length ? hits : best(model, nodes.map((node): Item => ({ kind: "node", node })), wanted);
}

function best(model: Model, items: Item[], wanted: string): Item[] {
  const ranked: [number, string, Item][] = [];
  for (const item of items) {
    const name = model.nameOf(item).toLowerCase();
    const rank = rankOf(name, wanted);
    if (rank !== null) ranked.push([rank, name, item]);
  }
  ranked.sort((a, b) => a[0] - b[0] || natural(a[1], b[1]));
  return ranked.slice(0, MOST).map(([, , item]) => item);
}

function rankOf(name: string, wanted: string): number | null {
  if (name === wanted || wanted.replace(/\/\d+$/, "") === name) return 0;
  const place = name.indexOf(wanted);
  return place < 0 ? null : place === 0 ? 1 : 2;
}
