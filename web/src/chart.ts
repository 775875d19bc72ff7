// Charts of counters (uPlot), and sparklines.

import uPlot from "uplot";
import { theme } from "./colours";
import type { Series } from "./shapes";
import { TRACE_S, type Trace } from "./store";
import { short } from "./format";

export class Chart {
  #plot: uPlot | null = null;

  constructor(readonly element: HTMLElement) {
    new ResizeObserver(() => {
      if (this.#plot && element.clientWidth) this.#plot.setSize({ width: element.clientWidth, height: this.#plot.height });
    }).observe(element);
  }

  show(series: Series, unit: string): void {
    this.#plot?.destroy();
    this.element.replaceChildren();
    const ink = theme();
    const isShort = series.t[series.t.length - 1] - series.t[0] < 300;
    const axis = { stroke: ink.faint, grid: { stroke: ink.dim, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const write = (_: uPlot, values: number[]) => values.map((value) => short(value) + unit);
    this.#plot = new uPlot(
      {
        width: this.element.clientWidth || 320,
        height: 150,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        scales: { y: { range: (_, __, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [
          { ...axis, values: (_, times) => times.map((time) => new Date(time * 1000).toTimeString().slice(0, isShort ? 8 : 5)), space: isShort ? 70 : 50 },
          { ...axis, size: 62, values: write },
        ],
        series: [{}, { stroke: ink.lit, fill: `${ink.lit}22`, width: 1.5, spanGaps: false, points: { show: false } }],
      },
      [series.t, series.v],
      this.element,
    );
  }
}

const SVG = "http://www.w3.org/2000/svg";

/** The last minutes of a rate, with gaps where data is missing. */
export function sparkline(trace: Trace, most: number): SVGSVGElement {
  const [width, height] = [120, 28];
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  const end = trace.t[trace.t.length - 1];
  let path = "";
  let isDown = false;
  trace.t.forEach((t, i) => {
    const value = trace.v[i];
    if (value === null) {
      isDown = false;
      return;
    }
    const x = width * (1 - (end - t) / TRACE_S);
    const y = height - 2 - (height - 4) * Math.min(value / most, 1);
    path += `${isDown ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    isDown = true;
  });
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}
