// In a narrow window the panel is a sheet at the bottom (low, half or full), resized by dragging or pressing its grip.

import { byId } from "./dom";
import type { Store } from "./store";

const HEIGHTS = ["low", "half", "full"] as const;
type Height = (typeof HEIGHTS)[number];

export function sheet(store: Store): { lower(): void } {
  const [panel, grip] = [byId("panel"), byId("grip")];
  let height: Height = "low";
  const set = (to: Height) => {
    height = to;
    panel.dataset.height = document.body.dataset.sheet = to;
    panel.style.removeProperty("height");
    grip.setAttribute("aria-expanded", String(to !== "low"));
  };
  let from: { y: number; height: number } | null = null;
  let wasDragged = false;
  grip.addEventListener("pointerdown", (event) => {
    from = { y: event.clientY, height: panel.offsetHeight };
    wasDragged = false;
    grip.setPointerCapture(event.pointerId);
  });
  grip.addEventListener("pointermove", (event) => {
    if (!from) return;
    wasDragged ||= Math.abs(event.clientY - from.y) > 6;
    if (wasDragged) panel.style.height = `${from.height + from.y - event.clientY}px`;
  });
  grip.addEventListener("pointerup", () => {
    from = null;
    if (!wasDragged) return;
    const share = panel.offsetHeight / innerHeight;
    set(share < 0.3 ? "low" : share < 0.7 ? "half" : "full");
  });
  grip.addEventListener("click", () => {
    if (!wasDragged) set(HEIGHTS[(HEIGHTS.indexOf(height) + 1) % HEIGHTS.length]);
  });
  store.on(["tab", "select"], () => height === "low" && (store.selection || store.tab !== "overview") && set("half"));
  set("low");
  return { lower: () => set("low") };
}
