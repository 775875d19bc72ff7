// The pages of the side panel as ARIA tabs; left and right arrows move between them.

import { byId, fill, h } from "./dom";
import type { Store, Tab } from "./store";

const TABS: [Tab, string][] = [
  ["overview", "Now"],
  ["selected", "Selected"],
  ["path", "Path"],
  ["tenants", "Tenants"],
  ["runs", "Runs"],
  ["table", "Table"],
  ["whatif", "What if"],
  ["history", "History"],
  ["log", "Log"],
];

export function tabs(store: Store): Record<Tab, HTMLElement> {
  const pages = {} as Record<Tab, HTMLElement>;
  const buttons = TABS.map(([tab, text]) => {
    pages[tab] = h("section", { id: `page-${tab}`, role: "tabpanel", "aria-labelledby": `tab-${tab}`, class: "page" });
    return h("button", { id: `tab-${tab}`, type: "button", role: "tab", "aria-controls": `page-${tab}`, onclick: () => store.show(tab) }, text);
  });
  fill(byId("tabs"), buttons);
  fill(byId("pages"), Object.values(pages));
  byId("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = TABS.findIndex(([tab]) => tab === store.tab);
    const next = (at + step + TABS.length) % TABS.length;
    store.show(TABS[next][0]);
    buttons[next].focus();
    event.preventDefault();
  });
  const show = () => {
    TABS.forEach(([tab], i) => {
      const isShown = tab === store.tab;
      pages[tab].hidden = !isShown;
      buttons[i].setAttribute("aria-selected", String(isShown));
      buttons[i].tabIndex = isShown ? 0 : -1;
    });
  };
  store.on("tab", show);
  show();
  return pages;
}
