// Names of nodes: above what hangs from them, below what stands at the bottom.

import type { NodeLabelDrawingFunction } from "sigma/rendering";
import { theme } from "../colours";

let nearness = 1;

/** Of the camera: names are written where they have room. */
export function setNearness(ratio: number): void {
  nearness = 1 / ratio;
}

export const drawName: NodeLabelDrawingFunction = (context, data, settings) => {
  if (!data.label) return;
  const ink = theme();
  context.font = `${settings.labelSize}px ${settings.labelFont}`;
  const { room } = data as { room?: number }; // to the next in its row, when all is shown
  if (room && context.measureText(data.label).width + 6 > room * nearness) return;
  context.textAlign = "center";
  const y = data.type === "switch" ? data.y - data.size * 1.4 - 4 : data.y + data.size + settings.labelSize;
  context.lineWidth = 3;
  context.lineJoin = "round";
  context.strokeStyle = ink.halo;
  context.strokeText(data.label, data.x, y);
  context.fillStyle = ink.text;
  context.fillText(data.label, data.x, y);
};
