// Without a graphics card a browser needs a tenth of a second for tens of thousands of lines. If rendering is slow, the last
// drawing is moved with the camera as one image in every frame, while a new drawing is rendered in the background and
// replaces it when it is complete. When the camera stops, sigma's own layers are shown again.

import type Sigma from "sigma";
import type { CameraState } from "sigma/types";

const SLOW_MS = 40; // a slower drawing switches to the image
const FRAME_MS = 20; // a longer frame has waited for a drawing
const REST = 5; // pause before the next drawing, in multiples of the time that frames waited
const STANDS_MS = 150;
const LAYERS = ["edges", "marks", "nodes", "labels"]; // from the bottom

export class Glide {
  readonly #image = document.createElement("canvas");
  readonly #pen = this.#image.getContext("2d")!;
  readonly #gl: WebGL2RenderingContext; // the layer of lines, which is slowest
  readonly #draw: () => Sigma; // renders everything in the next frame
  #drawn: CameraState; // camera of sigma's layers
  #kept: CameraState; // camera of the image
  #drawing: WebGLSync | null = null; // a drawing in progress
  #beganAt = 0;
  #seenAt = 0; // time of the previous frame
  #waited = 0; // waiting time of frames during a drawing, in ms
  #movedAt = -STANDS_MS;
  #cost = 0; // time of a drawing, in ms
  #frame = 0;
  #timer = 0;

  /** Create it after all other listeners that draw after sigma. */
  constructor(
    readonly sigma: Sigma,
    readonly stage: HTMLElement,
  ) {
    this.#image.className = "glide";
    stage.prepend(this.#image);
    this.#gl = sigma.getCanvases().edges.getContext("webgl2")!;
    this.#drawn = this.#kept = sigma.getCamera().getState();
    this.#draw = sigma.scheduleRender.bind(sigma);
    sigma.scheduleRender = () => this.#asked();
    sigma.on("afterRender", () => this.#drew());
    sigma.on("kill", () => this.#end());
  }

  get #isGliding(): boolean {
    return this.stage.classList.contains("gliding");
  }

  /** Handle a change of the camera or the drawing. */
  #asked(): Sigma {
    const { x, y, ratio, angle } = this.sigma.getCamera().getState();
    const drawn = this.#drawn;
    if (x === drawn.x && y === drawn.y && ratio === drawn.ratio && angle === drawn.angle) return this.#draw();
    this.#movedAt = performance.now();
    if (this.#cost < SLOW_MS && !this.#isGliding) return this.#draw();
    this.#frame ||= requestAnimationFrame(() => this.#move());
    return this.sigma;
  }

  #move(): void {
    this.#frame = 0;
    if (!this.#isGliding) this.#keep();
    this.stage.classList.add("gliding");
    this.#image.style.transform = this.#transform();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#draw, STANDS_MS);
    if (!this.#drawing && performance.now() - this.#seenAt > this.#cost + REST * this.#waited) this.#draw();
  }

  /** The transformation that maps two old points to their new positions. */
  #transform(): string {
    const place = (x: number, cameraState: CameraState) => this.sigma.framedGraphToViewport({ x, y: 0 }, { cameraState });
    const now = this.sigma.getCamera().getState();
    const [p0, q0, p1, q1] = [place(0, this.#kept), place(1, this.#kept), place(0, now), place(1, now)];
    const [ux, uy, vx, vy] = [q0.x - p0.x, q0.y - p0.y, q1.x - p1.x, q1.y - p1.y];
    const long = ux * ux + uy * uy;
    const [a, b] = [(vx * ux + vy * uy) / long, (vy * ux - vx * uy) / long];
    return `matrix(${a}, ${b}, ${-b}, ${a}, ${p1.x - a * p0.x + b * p0.y}, ${p1.y - b * p0.x - a * p0.y})`;
  }

  /** Handle sigma's draw calls, which the GPU executes later. */
  #drew(): void {
    this.#drawn = this.sigma.getCamera().getState();
    if (this.#drawing) return;
    this.#beganAt = this.#seenAt = performance.now();
    this.#waited = 0;
    requestAnimationFrame(() => this.#await());
    this.#drawing = this.#gl.fenceSync(this.#gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    this.#gl.flush();
  }

  #await(): void {
    if (!this.#drawing) return;
    const now = performance.now();
    this.#waited += Math.max(now - this.#seenAt - FRAME_MS, 0);
    this.#seenAt = now;
    if (this.#gl.getSyncParameter(this.#drawing, this.#gl.SYNC_STATUS) === this.#gl.UNSIGNALED) {
      requestAnimationFrame(() => this.#await());
      return;
    }
    this.#drawing = null;
    this.#cost = now - this.#beganAt;
    if (!this.#isGliding) return;
    if (now - this.#movedAt > STANDS_MS) this.stage.classList.remove("gliding");
    else this.#keep();
  }

  /** Copy sigma's layers to an image. */
  #keep(): void {
    const canvases = this.sigma.getCanvases();
    const { width, height } = canvases.edges;
    if (this.#image.width !== width || this.#image.height !== height) Object.assign(this.#image, { width, height });
    this.#pen.clearRect(0, 0, width, height);
    for (const name of LAYERS) this.#pen.drawImage(canvases[name], 0, 0);
    this.#kept = this.#drawn;
    this.#image.style.transform = this.#transform();
  }

  #end(): void {
    this.#drawing = null;
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#timer);
    this.stage.classList.remove("gliding");
    this.#image.remove();
  }
}
