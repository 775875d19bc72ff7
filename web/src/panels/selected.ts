// The selected node or cable.

import { fill, h } from "../dom";
import type { Store } from "../store";
import { linkPanel } from "./cable";
import { nodePanel } from "./node";

export function selected(store: Store, element: HTMLElement): void {
  let refresh = () => {};
  const show = () => {
    const one = store.selection;
    if (!store.model || one === null) {
      refresh = () => {};
      fill(element, h("p", { class: "faint" }, "Nothing is selected. Click a node or a cable, or press / and type a name."));
      return;
    }
    refresh = one.kind === "node" ? nodePanel(store, one.node, element) : linkPanel(store, one.link, element);
    refresh();
  };
  store.on(["select", "model"], show);
  store.on(["live", "line"], () => store.tab === "selected" && refresh());
  show();
}
