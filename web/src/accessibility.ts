// Accessibility: screen readers, reduced motion.

import { byId, say } from "./dom";

const still = matchMedia("(prefers-reduced-motion: reduce)");

export function movesLittle(): boolean {
  return still.matches;
}

/** Announce politely. */
export function announce(text: string): void {
  say(byId("said"), text);
}

/** Announce at once. */
export function alarm(text: string): void {
  say(byId("alarm"), text);
}
