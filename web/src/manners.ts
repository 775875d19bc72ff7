// For everybody: who reads by ear, who does not bear motion.

import { byId, say } from "./dom";

const still = matchMedia("(prefers-reduced-motion: reduce)");

export function movesLittle(): boolean {
  return still.matches;
}

/** Said when there is a moment. */
export function announce(text: string): void {
  say(byId("said"), text);
}

/** Said at once. */
export function alarm(text: string): void {
  say(byId("alarm"), text);
}
