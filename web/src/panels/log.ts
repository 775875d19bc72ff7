// The log, newest first.

import { fill, h } from "../dom";
import type { Store } from "../store";
import { clock } from "../format";

export function log(store: Store, element: HTMLElement): void {
  const list = h("ol", { class: "log" });
  const none = h("p", { class: "faint" }, "No events since this page was opened.");
  fill(element, none, list);
  store.on("log", () => {
    none.hidden = true;
    const line = store.log[0];
    list.prepend(h("li", { "data-kind": line.kind }, h("time", null, clock(line.t)), h("b", null, line.kind), h("span", null, line.text)));
    while (list.children.length > store.log.length) list.lastElementChild!.remove();
  });
}
