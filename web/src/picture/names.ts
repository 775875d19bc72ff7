// Labels of nodes: above switches, below hosts.

import type { NodeLabelDrawingFunction } from "sigma/rendering";
import { theme } from "../colours";

let nearness = 1;

/** Camera ratios at which labels have room. */
export function setNearness(ratio: number): void {
  nearness = 1 / ratio;
}

export const drawName: NodeLabelDrawingFunction = (context, data, settings) => {
  if (!data.label) return;
  const ink = theme();
  context.font = `${settings.labelSize}px ${settings.labelFont}`;
  const { room } = data as { room?: number }; // distance to the next node in its row at full view
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
