// Find the node or cable under the pointer by searching all of them: less than a millisecond for tens of thousands.
// sigma would render them a second time in every frame.

import type Graph from "graphology";
import Sigma from "sigma";
import type { Settings } from "sigma/settings";
import type { Model } from "../model";

const REACH_PX = 7;
const NODE_REACH_PX = 4;

type Point = { x: number; y: number };

/** Disables sigma's own picking, which waits for the graphics card at every move of the pointer. */
export class Unpicked extends Sigma {
  constructor(graph: Graph, stage: HTMLElement, settings: Partial<Settings>) {
    super(graph, stage, settings);
    Object.assign(this, { getNodeAtPosition: () => null });
  }

  override createWebGLContext(id: string, options?: Parameters<Sigma["createWebGLContext"]>[1]): WebGLRenderingContext {
    return super.createWebGLContext(id, { ...options, picking: false, preserveDrawingBuffer: true });
  }
}

export function nearestNode(sigma: Sigma, model: Model, at: Point): number | null {
  const point = sigma.viewportToFramedGraph(at);
  const pixel = sigma.viewportToFramedGraph({ x: at.x + 1, y: at.y }).x - point.x;
  let best: number | null = null;
  let least = 1;
  for (let node = 0; node < model.nodes; node++) {
    const data = sigma.getNodeDisplayData(String(node));
    if (!data) continue;
    const reach = (sigma.scaleSize(data.size) + NODE_REACH_PX) * pixel;
    const far = ((data.x - point.x) ** 2 + (data.y - point.y) ** 2) / reach ** 2;
    if (far < least) [least, best] = [far, node];
  }
  return best;
}

export function nearestLink(sigma: Sigma, model: Model, at: Point): number | null {
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
