// The path between two hosts by the forwarding tables, highlighted in the drawing.

import { messageOf } from "../api";
import { fill, h } from "../dom";
import { announce } from "../accessibility";
import { nodeField } from "../search";
import type { Route } from "../shapes";
import type { Store } from "../store";

export function path(store: Store, element: HTMLElement): { aim(end: "from" | "to", node: number): void } {
  const ends = { from: "", to: "" };
  const found = h("div", { "aria-live": "polite" });
  const ask = async () => {
    if (!ends.from || !ends.to) return;
    try {
      const route = await store.api.get<Route>(`/routes?${new URLSearchParams(ends)}`);
      store.setRoute(route);
      fill(found, route.reaches ? arrives(route) : h("p", { class: "problem" }, route.reason), hops(store, route));
      announce(route.reaches ? `path of ${route.hops.length - 1} cables` : `no path: ${route.reason}`);
    } catch (error) {
      fill(found, h("p", { class: "problem" }, messageOf(error)));
    }
  };
  const field = (end: "from" | "to", text: string) =>
    nodeField(store, text, "a host", (item) => ((ends[end] = store.model!.nameOf(item)), void ask()), true);
  const [from, to] = [field("from", "From"), field("to", "To")];
  const clear = () => {
    ends.from = ends.to = from.input.value = to.input.value = "";
    if (store.route) store.setRoute(null);
    fill(found, hint());
  };
  fill(
    element,
    h("div", { class: "ends-of-path" }, h("label", null, "From", from.element), h("label", null, "To", to.element)),
    h("p", { class: "buttons" }, h("button", { type: "button", onclick: clear }, "Clear")),
    found,
  );
  fill(found, hint());
  let before = "";
  store.on("live", () => {
    const now = cabling(store);
    if (store.route && now !== before) void ask(); // the route may have changed
    before = now;
  });
  store.on("route", () => !store.route && ends.to && clear());
  return {
    aim(end, node) {
      (end === "from" ? from : to).input.value = ends[end] = store.model!.name(node);
      void ask();
      if (!ends.from || !ends.to) (ends.from ? to : from).input.focus();
    },
  };
}

/** Identifies the drawing and the links that are down. */
function cabling(store: Store): string {
  const down = store.live!.links.state.flatMap((state, link) => (state === "down" ? [link] : []));
  return `${store.live!.revision} ${store.live!.sm?.host} ${down.join(" ")}`;
}

function hint(): HTMLElement {
  return h("p", { class: "faint" }, "Enter two hosts: the path of their packets is highlighted in the drawing.");
}

function hops(store: Store, route: Route): HTMLElement {
  const rows = route.hops.map((hop) =>
    h(
      "li",
      null,
      h("button", { type: "button", class: "name", onclick: () => store.selectNode(hop.node) }, hop.node),
      h("span", { class: "faint" }, [hop.in_port ? `in at ${hop.in_port}` : "", hop.out_port ? `out at ${hop.out_port}` : "", hop.vl !== null && hop.out_port ? `VL ${hop.vl}` : ""].filter(Boolean).join(", ")),
    ),
  );
  return h("ol", { class: "hops", hidden: !rows.length }, rows);
}

function arrives(route: Route): HTMLElement {
  const words = `Arrives after ${route.hops.length - 1} cables; service level ${route.sl ?? 0}, P_Key ${route.pkey}.`;
  return h("p", null, words);
}
