// Without a graphics card a browser draws tens of thousands of lines in software, a few times a second. Where that is
// found to be so, lines and names are left out while the picture moves, and are back when it stands.

import type Sigma from "sigma";

const SLOW_MS = 60; // a frame
const OFTEN = 3; // frames in a row
const STANDS_MS = 180;

export function keepPace(sigma: Sigma): void {
  let [last, slow] = [0, 0];
  let timer = 0;
  sigma.getCamera().on("updated", () => {
    const now = performance.now();
    slow = now - last > SLOW_MS && now - last < 20 * SLOW_MS ? slow + 1 : 0;
    last = now;
    if (slow === OFTEN) sigma.setSettings({ hideEdgesOnMove: true, hideLabelsOnMove: true });
    clearTimeout(timer);
    timer = setTimeout(() => sigma.scheduleRender(), STANDS_MS);
  });
}
