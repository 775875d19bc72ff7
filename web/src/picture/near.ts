// The cable under the pointer. Asked on a click only: every line is looked at, which takes less than a millisecond for
// tens of thousands; sigma would draw all of them a second time in every frame to know.

import type Sigma from "sigma";
import type { Model } from "../model";

const REACH_PX = 7;

export interface Segments {
  sigma: Sigma;
  model: Model;
}

export function nearestLink({ sigma, model }: Segments, at: { x: number; y: number }): number | null {
  const point = sigma.viewportToFramedGraph(at);
  const beside = sigma.viewportToFramedGraph({ x: at.x + REACH_PX, y: at.y });
  let least = (beside.x - point.x) ** 2 + (beside.y - point.y) ** 2;
  let best: number | null = null;
  const { a, b } = model.fabric.links;
  const places = model.fabric.nodes.name.map((_, i) => sigma.getNodeDisplayData(String(i))!); // only ends of links are used
  for (let link = 0; link < model.links; link++) {
    const [from, to] = [places[a[link]], places[b[link]]];
    const far = distance2(point.x, point.y, from.x, from.y, to.x, to.y);
    if (far < least) [least, best] = [far, link];
  }
  return best;
}

/** Square of the distance of a point from a line between two others. */
function distance2(px: number, py: number, ax: number, ay: number, bx: number, by: number): number {
  const [dx, dy] = [bx - ax, by - ay];
  const length2 = dx * dx + dy * dy;
  const share = length2 ? Math.min(Math.max(((px - ax) * dx + (py - ay) * dy) / length2, 0), 1) : 0;
  return (px - ax - share * dx) ** 2 + (py - ay - share * dy) ** 2;
}
