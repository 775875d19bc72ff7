// Keyboard navigation.

import { byId } from "./dom";
import type { Picture } from "./picture/picture";
import { type Direction, nextItem } from "./picture/walk";
import type { Measure, Store } from "./store";

const ARROWS: Record<string, Direction> = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down" };
const MEASURES: Record<string, Measure> = { l: "load", e: "errors", t: "tenant" };

export function keys(store: Store, picture: Picture | null, setMeasure: (measure: Measure) => void): void {
  byId("stage").addEventListener("keydown", (event) => {
    if (!store.model || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in ARROWS) {
      const from = store.selection?.kind === "link" ? null : store.selection;
      const item = nextItem(store.model, from, ARROWS[event.key]);
      if (item !== null) {
        store.select(item);
        picture?.reveal(item);
      }
    } else if (event.key === "Enter") {
      store.show("selected");
      byId("tab-selected").focus();
    } else if (event.key === "+" || event.key === "=") picture?.zoom(1 / 1.5);
    else if (event.key === "-") picture?.zoom(1.5);
    else if (event.key === "0") picture?.fit();
    else return;
    event.preventDefault();
  });
  addEventListener("keydown", (event) => {
    const at = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || at.closest("dialog")) return;
    if (event.key === "Escape") {
      store.select(null);
      store.setRoute(null);
      return;
    }
    if (at.matches("input, textarea, select")) return;
    if (event.key === "/") byId("search").querySelector("input")!.focus();
    else if (event.key === "?") byId<HTMLDialogElement>("keys").showModal();
    else if (event.key in MEASURES) setMeasure(MEASURES[event.key]);
    else return;
    event.preventDefault();
  });
}
