// The recorded changes of a node or cable, newest first, and all events; each leads to its time.

import { messageOf } from "../api";
import { fill, h } from "../dom";
import { count, moment } from "../format";
import type { RecordedChange } from "../shapes";
import type { Store } from "../store";

const MOST = 20;
const MOST_EVENTS = 200;

function goto(element: HTMLElement, t: number): HTMLElement {
  const open = () => element.dispatchEvent(new CustomEvent("moment", { bubbles: true, detail: t }));
  return h("button", { type: "button", class: "name", title: "Show this moment", onclick: open }, moment(t));
}

/** A section with the changes of some names, filled when it is read. */
export function changesOf(store: Store, names: string[]): HTMLElement {
  const list = h("ol", { class: "changes" });
  const section = h("section", { class: "recorded", "aria-label": "History", hidden: true }, h("h3", null, "History"), list);
  void (async () => {
    if (!store.hasHistory) return;
    try {
      const lists = await Promise.all(names.map((name) => store.api.get<RecordedChange[]>(`/changes?${new URLSearchParams({ name, limit: String(MOST) })}`)));
      const rows = lists.flat().sort((a, b) => b.t - a.t).slice(0, MOST);
      section.hidden = false;
      fill(list, rows.length ? rows.map((row) => h("li", null, goto(section, row.t), h("span", null, textOf(row)))) : h("li", { class: "faint" }, "no change is recorded"));
    } catch {
      section.hidden = true;
    }
  })();
  return section;
}

function textOf(row: RecordedChange): string {
  return `${row.kind} ${row.name}: ${row.before ?? "none"} → ${row.after ?? "gone"}`;
}

/** The page with all events, and the differences between the shown moment and now. */
export function historyPage(store: Store, element: HTMLElement): void {
  const events = h("ol", { class: "changes" });
  const differences = h("div");
  const compare = h("button", { type: "button" }, "Compare with now");
  compare.addEventListener("click", async () => {
    try {
      const rows = await store.api.get<RecordedChange[]>(`/diff?from=${store.at}`);
      fill(differences, h("p", { class: "done" }, rows.length ? `${count(rows.length, "fact")} ${rows.length === 1 ? "differs" : "differ"} from now.` : "Nothing differs from now."), h("ul", { class: "changes" }, rows.slice(0, MOST_EVENTS).map((row) => h("li", null, h("span", null, textOf(row))))));
    } catch (error) {
      fill(differences, h("p", { class: "problem" }, messageOf(error)));
    }
  });
  const show = () => {
    compare.hidden = store.mode !== "past";
    if (store.mode !== "past") fill(differences);
    const rows = store.events.slice(-MOST_EVENTS).reverse();
    if (element.contains(document.activeElement) && document.activeElement !== compare) return; // keep the focus
    fill(events, rows.length ? rows.map((row) => h("li", { "data-kind": row.kind }, goto(element, row.t), h("span", null, h("b", null, row.kind), ` ${row.text}`))) : h("li", { class: "faint" }, "No event is recorded."));
  };
  fill(element, h("p", { class: "faint" }, "Recorded events, newest first. A time, or the slider below the drawing, shows the fabric of that moment."), compare, differences, events);
  store.on(["past", "mode"], show);
  show();
}
