// Arrow keys: along a row to the left and right; up and down along a cable.

import type { Model } from "../model";

export type Direction = "left" | "right" | "up" | "down";

export function nextNode(model: Model, from: number | null, direction: Direction): number | null {
  const { x, y } = model.fabric.nodes;
  if (from === null) return topLeft(model);
  let best: number | null = null;
  let least = Infinity;
  const consider = (node: number) => {
    const far = Math.abs(x[node] - x[from]);
    if (far < least) [best, least] = [node, far];
  };
  if (direction === "left" || direction === "right") {
    const sign = direction === "right" ? 1 : -1;
    for (let node = 0; node < model.nodes; node++) {
      if (model.isShown(node) && y[node] === y[from] && (x[node] - x[from]) * sign > 0) consider(node);
    }
    return best;
  }
  const sign = direction === "up" ? 1 : -1;
  for (const link of model.linksOf(from)) {
    const node = model.across(link, from);
    if ((y[node] - y[from]) * sign > 0) consider(node);
  }
  return best;
}

function topLeft(model: Model): number | null {
  const { x, y } = model.fabric.nodes;
  let best: number | null = null;
  for (let node = 0; node < model.nodes; node++) {
    if (!model.isShown(node)) continue;
    if (best === null || y[node] > y[best] || (y[node] === y[best] && x[node] < x[best])) best = node;
  }
  return best;
}
