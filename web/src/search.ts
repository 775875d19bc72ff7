// A field that finds nodes by name, for the search and for the ends of a path.

import { fill, h } from "./dom";
import type { Model } from "./model";
import type { Store } from "./store";
import { natural } from "./format";

const MOST = 8;
let made = 0;

export interface Field {
  element: HTMLElement;
  input: HTMLInputElement;
}

export function nodeField(store: Store, label: string, hint: string, chosen: (node: number) => void, hostsOnly = false): Field {
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
  let hits: number[] = [];
  let at = 0;

  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const choose = (node: number) => {
    input.value = store.model!.name(node);
    close();
    chosen(node);
  };
  const mark = () => {
    [...list.children].forEach((one, i) => one.setAttribute("aria-selected", String(i === at)));
    if (hits.length) input.setAttribute("aria-activedescendant", `${id}-${at}`);
  };
  const open = () => {
    if (!store.model) return;
    hits = find(store.model, input.value.trim(), hostsOnly);
    at = 0;
    const rows = hits.map((node, i) =>
      h(
        "li",
        { id: `${id}-${i}`, role: "option", onpointerdown: (event: Event) => (event.preventDefault(), choose(node)) },
        h("b", null, store.model!.name(node)),
        h("span", null, store.model!.describe(node)),
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

/** Exact match, then prefix, then substring; a port such as leaf1/5 finds its node. */
export function find(model: Model, text: string, hostsOnly = false): number[] {
  const wanted = text.toLowerCase().split("/")[0];
  if (!wanted) return [];
  const names = model.fabric.nodes.name;
  const ranked: [number, number][] = [];
  for (let node = 0; node < names.length; node++) {
    if (!model.isShown(node) || (hostsOnly && model.isSwitch(node))) continue;
    const name = names[node].toLowerCase();
    const place = name.indexOf(wanted);
    if (place >= 0) ranked.push([name === wanted ? 0 : place === 0 ? 1 : 2, node]);
  }
  ranked.sort((a, b) => a[0] - b[0] || natural(names[a[1]], names[b[1]]));
  return ranked.slice(0, MOST).map(([, node]) => node);
}
