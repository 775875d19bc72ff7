// The drawing of the fabric. Built once for each revision; afterwards only colours of lines change.

import Graph from "graphology";
import type Sigma from "sigma";
import { BUSIEST, DIM, penOf, theme, thin, UNKNOWN } from "../colours";
import { announce, movesLittle } from "../accessibility";
import type { Item, Model } from "../model";
import type { Store } from "../store";
import { count } from "../format";
import { Bands, type Cable, gaps, Hairs, lanes } from "./cables";
import { serverAt } from "./frames";
import { inkLinks, tenantStep } from "./ink";
import { Glide } from "./glide";
import { drawName, setNearness } from "./names";
import { Marks } from "./marks";
import { nearestLink, nearestNode, Unpicked } from "./near";
import { Dot, Square } from "./nodes";

const MANY_NODES = 1000;
const MANY_LINKS = 5000;
const PADDING = 36;
const THINNEST = 1.5; // pixels of a cable

export class Picture {
  #sigma: Sigma | null = null;
  #model: Model | null = null;
  #graph: Graph | null = null;
  #steps = new Uint8Array(0); // [link] -> its colour step
  #gaps: Float32Array = new Float32Array(0); // [link] -> distance to the next parallel cable
  #aspect = 0;

  constructor(
    readonly store: Store,
    readonly stage: HTMLElement,
  ) {
    store.on("model", () => this.#build());
    store.on(["live", "line", "measure", "tenants", "route"], () => this.paint());
    store.on("select", () => this.#sigma?.scheduleRender());
    store.on("theme", () => this.#restyle());
    new ResizeObserver(() => this.#resized()).observe(stage);
  }

  /** Throws without WebGL. */
  #build(): void {
    const model = this.store.model!;
    const before = this.#sigma?.getCamera().getState();
    const isSame = this.#model?.nodes === model.nodes;
    this.#sigma?.kill();
    this.#model = model;
    this.#steps = new Uint8Array(model.links).fill(UNKNOWN);
    this.#gaps = gaps(model);
    const beside = lanes(model, model.fabric.nodes.x, model.fabric.nodes.y);
    this.#graph = this.#fillGraph(model, beside);
    const sigma = new Unpicked(this.#graph, this.stage, {
      ...this.#settings(model),
      nodeReducer: (key, data) => ({ ...data, color: this.#nodeInk(Number(key)) }),
      edgeReducer: (key, data) => this.#inked(Number(key), data as Cable),
    });
    this.#sigma = sigma;
    if (before && isSame) sigma.getCamera().setState(before);
    this.#listen(sigma, model, new Marks(sigma, this.store, model, beside, this.#steps));
    new Glide(sigma, this.stage);
    this.paint();
  }

  #settings(model: Model) {
    return {
      allowInvalidContainer: true,
      defaultNodeType: "host",
      nodeProgramClasses: { host: Dot, switch: Square },
      defaultEdgeType: "cable",
      edgeProgramClasses: { cable: model.links > MANY_LINKS ? Hairs : Bands },
      minEdgeThickness: THINNEST,
      stagePadding: PADDING,
      labelDensity: model.nodes > MANY_NODES ? 1 : 3, // measuring labels is slow
      labelGridCellSize: 70,
      labelRenderedSizeThreshold: 4,
      labelFont: "system-ui, sans-serif",
      labelSize: 11,
      defaultDrawNodeLabel: drawName,
      minCameraRatio: 0.01,
      maxCameraRatio: 1.6,
      zoomDuration: movesLittle() ? 0 : 160,
      inertiaDuration: movesLittle() ? 0 : 200,
    };
  }

  #fillGraph(model: Model, beside: Float32Array): Graph {
    const graph = new Graph({ type: "undirected", multi: true });
    const { x, y, name } = model.fabric.nodes;
    const { a, b } = model.fabric.links;
    const stretch = this.#stretch(model);
    const sizes = this.#sizes(model);
    for (let i = 0; i < model.nodes; i++) {
      if (!model.isShown(i)) continue;
      const type = model.isSwitch(i) ? "switch" : "host";
      graph.addNode(String(i), { x: x[i], y: y[i] * stretch, ...sizes(i), label: name[i], type });
    }
    for (let i = 0; i < model.links; i++) {
      graph.addEdgeWithKey(String(i), String(a[i]), String(b[i]), { dx: beside[2 * i], dy: beside[2 * i + 1] });
    }
    return graph;
  }

  /** Spread the rows over the height of the stage. */
  #stretch(model: Model): number {
    const { x, y } = model.fabric.nodes;
    const shown = (_: number, i: number) => model.isShown(i);
    const [wide, high] = [extent(x.filter(shown)), extent(y.filter(shown))];
    const [width, height] = [this.stage.clientWidth - 2 * PADDING, this.stage.clientHeight - 2 * PADDING];
    this.#aspect = width / Math.max(height, 1);
    return wide > 0 && high > 0 && height > 0 ? wide / high / this.#aspect : 1;
  }

  /** The size of a node in its row, in pixels. */
  #sizes(model: Model): (node: number) => { size: number; room: number } {
    const { x, y } = model.fabric.nodes;
    const rows = new Map<number, number[]>();
    for (let i = 0; i < model.nodes; i++) if (model.isShown(i)) (rows.get(y[i]) ?? rows.set(y[i], []).get(y[i])!).push(x[i]);
    const wide = Math.max(extent([...rows.values()].flat()), 1e-9);
    const found = new Map<number, number>();
    for (const [at, places] of rows) {
      places.sort((p, q) => p - q);
      let least = wide;
      for (let i = 1; i < places.length; i++) least = Math.min(least, places[i] - places[i - 1] || wide);
      found.set(at, (least / wide) * (this.stage.clientWidth - 2 * PADDING));
    }
    return (node) => {
      const room = found.get(y[node]) ?? 20;
      return { room, size: model.isSwitch(node) ? clamp(room * 0.32, 2.6, 10) : clamp(room * 0.3, 1.3, 5.5) };
    };
  }

  #resized(): void {
    const model = this.#model;
    const [width, height] = [this.stage.clientWidth - 2 * PADDING, this.stage.clientHeight - 2 * PADDING];
    if (!model || !this.#sigma || width <= 0 || height <= 0) return;
    if (Math.abs(width / height / this.#aspect - 1) > 0.08) {
      const stretch = this.#stretch(model);
      const sizes = this.#sizes(model);
      const { y } = model.fabric.nodes;
      this.#graph!.updateEachNodeAttributes((key, data) => ({ ...data, y: y[Number(key)] * stretch, ...sizes(Number(key)) }));
    }
    this.#sigma.scheduleRender();
  }

  // -- inks ------------------------------------------------------------------------------------------------------

  #nodeInk(node: number): string {
    const model = this.#model!;
    const ink = theme();
    const { tier } = model.fabric.nodes;
    if (model.isSwitch(node)) return ink.switches[clamp(tier[node] - 1, 0, ink.switches.length - 1)];
    const step = this.store.measure === "tenant" ? tenantStep(this.store, node) : UNKNOWN;
    return step === UNKNOWN ? ink.host : penOf(step, "tenant", ink)[0];
  }

  #inked(link: number, data: Cable): Cable {
    const step = this.#steps[link];
    [data.color, data.size] = penOf(step, this.store.measure, theme());
    data.size = Math.min(data.size, Math.max(0.5 * this.#gaps[link] * this.stage.clientWidth, THINNEST));
    if (this.#model!.links > MANY_LINKS) data.color = thin(data.color, this.#weight(step));
    return data;
  }

  /** Many lines overlap: draw important ones on top. */
  #weight(step: number): number {
    if (step === UNKNOWN || step === DIM) return 0.35;
    return this.store.measure === "load" ? 0.25 + (0.75 * (step % BUSIEST)) / 20 : this.store.measure === "errors" && step === 0 ? 0.35 : 1;
  }

  #lastMeasure = "";

  /** Update only lines whose colour changed. */
  paint(): void {
    const [sigma, model] = [this.#sigma, this.#model];
    if (!sigma || !model) return;
    const changed = inkLinks(this.store, model, this.#steps);
    if (this.#lastMeasure !== this.store.measure || this.store.measure === "tenant") return this.#restyle();
    this.#repaint([], changed.map(String));
  }

  #restyle(): void {
    this.#lastMeasure = this.store.measure;
    this.#repaint(this.#graph?.nodes() ?? [], this.#graph?.edges() ?? []);
  }

  #repaint(nodes: string[], edges: string[]): void {
    try {
      this.#sigma?.refresh({ partialGraph: { nodes, edges }, skipIndexation: true, schedule: true });
    } catch {
      this.#sigma?.scheduleRefresh(); // rebuilds all indices before the next frame
    }
  }

  // -- pointer ---------------------------------------------------------------------------------------------------

  #listen(sigma: Sigma, model: Model, marks: Marks): void {
    sigma.on("beforeRender", () => setNearness(sigma.getCamera().ratio));
    sigma.on("clickStage", ({ event }) => {
      const item = this.#itemAt(sigma, model, event);
      if (item) return this.store.select(item);
      const link = nearestLink(sigma, model, event);
      this.store.select(link === null ? null : { kind: "link", link });
    });
    sigma.on("moveBody", ({ event }) => {
      const item = this.#itemAt(sigma, model, event);
      if (item && marks.hovered ? model.nameOf(item) === model.nameOf(marks.hovered) : item === marks.hovered) return;
      marks.hovered = item;
      marks.draw();
      this.stage.classList.toggle("over", item !== null);
    });
  }

  /** The item under the pointer: a server; one of its adapters only if the server or an adapter of it is selected. */
  #itemAt(sigma: Sigma, model: Model, at: { x: number; y: number }): Item | null {
    const node = nearestNode(sigma, model, at);
    const server = node === null ? serverAt(sigma, model, at) : null;
    if (node === null) return server === null ? null : { kind: "server", server };
    const item = model.itemOf(node);
    const { selection } = this.store;
    if (item.kind === "node" || !selection || selection.kind === "link") return item;
    const isSelected = model.nodesOf(item).includes(model.nodesOf(selection)[0]);
    return isSelected ? { kind: "node", node } : item;
  }

  // -- camera ----------------------------------------------------------------------------------------------------

  #move(state: { x?: number; y?: number; ratio?: number }): void {
    void this.#sigma?.getCamera().animate(state, { duration: movesLittle() ? 0 : 350 });
  }

  zoom(factor: number): void {
    const camera = this.#sigma?.getCamera();
    if (camera) this.#move({ ratio: clamp(camera.ratio * factor, 0.01, 1.6) });
  }

  fit(): void {
    this.#move({ x: 0.5, y: 0.5, ratio: 1 });
  }

  /** Centre an item at a readable size. */
  goTo(item: Item): void {
    if (!this.#sigma || !this.#model) return;
    const at = this.#middle(item);
    const near = clamp(6 / Math.sqrt(this.#model.nodes), 0.05, 1);
    const ratio = Math.min(this.#sigma.getCamera().ratio, near);
    const inside = (place: number) => clamp(place, ratio / 2, 1 - ratio / 2); // show as little empty space as possible
    this.#move({ x: inside(at.x), y: inside(at.y), ratio });
  }

  /** The middle of an item, relative to the drawing. */
  #middle(item: Item): { x: number; y: number } {
    const nodes = this.#model!.nodesOf(item);
    const [first, last] = [nodes[0], nodes[nodes.length - 1]].map((node) => this.#sigma!.getNodeDisplayData(String(node))!);
    return { x: (first.x + last.x) / 2, y: (first.y + last.y) / 2 };
  }

  /** Move the camera just enough to show it. */
  reveal(item: Item): void {
    const [sigma, model] = [this.#sigma, this.#model];
    if (!sigma || !model) return;
    const data = this.#middle(item);
    const at = sigma.framedGraphToViewport(data, { cameraState: sigma.getCamera().getState() });
    const { width, height } = sigma.getDimensions();
    if (at.x < 20 || at.y < 20 || at.x > width - 20 || at.y > height - 20) this.#move({ x: data.x, y: data.y });
    const cables = model.nodesOf(item).reduce((sum, node) => sum + model.linksOf(node).length, 0);
    announce(`${model.nameOf(item)}, ${model.describe(item)}, ${count(cables, "cable")}`);
  }
}

function extent(values: number[]): number {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return values.length ? high - low : 0;
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), high);
}
