// The legend of colours.

import { theme } from "./colours";
import { fill, h } from "./dom";
import type { Store } from "./store";

export function legend(store: Store, element: HTMLElement): void {
  const show = () => {
    const rows = { load: ofLoad, errors: ofErrors, tenant: ofTenants }[store.measure](store);
    fill(element, rows, h("div", { class: "keys" }, key("cross", "down"), key("bang", "suspect")));
  };
  store.on(["measure", "tenants", "theme", "model"], show);
  show();
}

function key(shape: string, text: string): HTMLElement {
  return h("span", { class: "key" }, h("i", { class: `sign ${shape}`, "aria-hidden": "true" }, shape === "cross" ? "×" : "!"), text);
}

function swatch(colour: string, text: string): HTMLElement {
  return h("span", { class: "key" }, h("i", { class: "swatch", "--ink": colour }), text);
}

function ofLoad(): HTMLElement[] {
  const inks = theme().load;
  const bar = h("div", { class: "ramp", "aria-hidden": "true" }, inks.map((ink) => h("i", { "--ink": ink })));
  const ends = h("div", { class: "ends" }, h("span", null, "0 %"), h("span", null, "load"), h("span", null, "100 %"));
  return [h("div", null, bar, ends), swatch(inks[inks.length - 1], "thick: the busiest")];
}

function ofErrors(): HTMLElement[] {
  const inks = theme().errors;
  const words = ["none", "1+", "10+", "100+", "1,000+", "10,000+"];
  return [h("div", { class: "title" }, "errors since the last reading"), h("div", { class: "keys" }, words.map((word, i) => swatch(inks[i], word)))];
}

function ofTenants(store: Store): HTMLElement[] {
  const inks = theme().tenants;
  if (!store.tenantNames.length) return [h("div", { class: "title" }, "no tenants: add some under Tenants")];
  const named = store.tenantNames.map((name, i) => swatch(inks[i % inks.length], name));
  return [
    h("div", { class: "keys" }, named, swatch(theme().unknown, "no tenant")),
    h("div", { class: "title" }, "cables between switches have no tenant"),
  ];
}
