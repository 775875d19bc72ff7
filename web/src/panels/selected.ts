// The selected server, node or cable.

import { fill, h } from "../dom";
import type { Store } from "../store";
import { linkPanel } from "./cable";
import { nodePanel } from "./node";
import { serverPanel } from "./server";

export function selected(store: Store, element: HTMLElement): void {
  let refresh = () => {};
  const show = () => {
    const selection = store.selection;
    if (!store.model || selection === null) {
      refresh = () => {};
      fill(element, h("p", { class: "faint" }, "Nothing is selected. Click a server, a switch or a cable, or press / and type a name."));
      return;
    }
    if (selection.kind === "link") refresh = linkPanel(store, selection.link, element);
    else if (selection.kind === "server") refresh = serverPanel(store, selection.server, element);
    else refresh = nodePanel(store, selection.node, element);
    refresh();
  };
  store.on(["select", "model"], show);
  store.on(["live", "line", "mode"], () => store.tab === "selected" && refresh());
  show();
}
