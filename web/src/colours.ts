// Colours of the drawing. They differ mainly in lightness, for all kinds of colour vision and in grey print.

import type { Measure } from "./store";

export interface Theme {
  paper: string;
  text: string;
  faint: string;
  halo: string; // behind labels
  dim: string; // nodes and links outside of the focus
  unknown: string;
  switches: string[]; // leaf, spine, core
  host: string;
  frame: string; // around the adapters of a server
  load: string[];
  errors: string[]; // none, then one for each power of ten
  tenants: string[];
  lit: string;
  alarm: string;
  selected: string;
}

const STEPS = 21; // steps of a colour ramp

const LIGHT: Theme = {
  paper: "#ffffff",
  text: "#2b3947",
  faint: "#6c7885",
  halo: "#ffffffd0",
  dim: "#eceff2",
  unknown: "#d5dce2",
  switches: ["#55708b", "#33475b", "#1d2b3a"],
  host: "#8593a1",
  frame: "#d9e0e7",
  load: ramp(["#dbe4ec", "#b5d3e8", "#86bbdd", "#559dcd", "#2f7cb8", "#3f4fa3", "#6d1a6e"]),
  errors: ["#d5dce2", "#e8b33c", "#e08214", "#c9500f", "#98280b", "#5f0f0a"],
  tenants: ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a800", "#7f3c8d"],
  lit: "#0a58ca",
  alarm: "#c01518",
  selected: "#0a58ca",
};

const DARK: Theme = {
  paper: "#14181d",
  text: "#cfd8e1",
  faint: "#8d99a6",
  halo: "#14181dd0",
  dim: "#20262d",
  unknown: "#36414c",
  switches: ["#7690a9", "#9db0c2", "#c3cfdb"],
  host: "#6b7683",
  frame: "#323c47",
  load: ramp(["#2d3845", "#33527a", "#4a6fc0", "#8a76d6", "#c987c9", "#f0a99c", "#fde3a0"]),
  errors: ["#36414c", "#8c4a1f", "#c4661c", "#f08a24", "#ffb954", "#ffe6a6"],
  tenants: ["#4aa3e0", "#e69f00", "#1fbf8f", "#e08fbd", "#8fd0f5", "#f0763a", "#f0e442", "#b785c4"],
  lit: "#6cb6ff",
  alarm: "#ff7a70",
  selected: "#6cb6ff",
};

function ramp(stops: string[]): string[] {
  return Array.from({ length: STEPS }, (_, i) => {
    const place = (i / (STEPS - 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return mix(stops[low], stops[low + 1], place - low);
  });
}

function mix(one: string, other: string, share: number): string {
  const part = (at: number) => {
    const [a, b] = [one, other].map((text) => parseInt(text.slice(at, at + 2), 16));
    return Math.round(a + (b - a) * share).toString(16).padStart(2, "0");
  };
  return `#${part(1)}${part(3)}${part(5)}`;
}

const dark = matchMedia("(prefers-color-scheme: dark)");

export function theme(): Theme {
  return dark.matches ? DARK : LIGHT;
}

export function onTheme(listener: () => void): void {
  dark.addEventListener("change", listener);
}

// -- steps: what a link is inked by, a small number; only links whose step changed are drawn anew ----------------------

export const DIM = 254;
export const UNKNOWN = 255;

export function stepOfLoad(load: number | null): number {
  return load === null ? UNKNOWN : Math.round(Math.min(Math.max(load, 0), 1) * (STEPS - 1));
}

export function stepOfErrors(errors: number | null, most: number): number {
  if (errors === null) return UNKNOWN;
  return errors <= 0 ? 0 : Math.min(1 + Math.floor(Math.log10(Math.max(errors, 1))), most - 1);
}

/** Colour with alpha, as WebGL blends it. */
export function thin(colour: string, share: number): string {
  const part = (at: number) => Math.round(parseInt(colour.slice(at, at + 2), 16) * share).toString(16).padStart(2, "0");
  return `#${part(1)}${part(3)}${part(5)}${Math.round(255 * share).toString(16).padStart(2, "0")}`;
}

/** Added to the step of the busiest links, which are drawn thick. */
export const BUSIEST = 32;

/**
 * The lowest step of load that is drawn thick: as few links as `most` have this step or a higher one. Infinity: none, for
 * example if all links are equally busy.
 */
export function busiestStep(steps: number[], most: number): number {
  const links = new Array<number>(STEPS).fill(0);
  for (const step of steps) if (step < STEPS) links[step]++;
  let [lowest, sum] = [Infinity, 0];
  for (let step = STEPS - 1; step > 0 && sum + links[step] <= most; step--) {
    sum += links[step];
    if (links[step]) lowest = step;
  }
  return lowest;
}

/** [step] -> colour and width of a line. */
export function penOf(step: number, measure: Measure, of: Theme): [string, number] {
  if (step === DIM) return [of.dim, 1];
  if (step === UNKNOWN) return [of.unknown, 1];
  if (measure === "load") return [of.load[step % BUSIEST], step < BUSIEST ? 1 : 4];
  if (measure === "errors") return [of.errors[step], step === 0 ? 1 : 1.4 + step * 0.5];
  return [of.tenants[step % of.tenants.length], 1.8];
}
