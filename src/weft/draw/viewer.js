"use strict";
const svg = document.querySelector("svg"), tip = document.getElementById("tip");
const search = document.getElementById("search"), found = document.getElementById("found");
const whole = svg.getAttribute("viewBox").split(" ").map(Number);
let view = [...whole];

// What the pointer tells: taken from the <title> elements, so that the browser does not show them a second time.
const told = new Map();
for (const title of [...svg.querySelectorAll("title")]) {
  told.set(title.parentElement, title.textContent);
  title.remove();
}

// Who is joined to whom: box -> lines and boxes.
const joined = new Map();
const join = (id, element) => joined.has(id) ? joined.get(id).push(element) : joined.set(id, [element]);
const box = (id) => document.getElementById("b" + id);
for (const line of svg.querySelectorAll("path[data-e]")) {
  const [a, b] = line.dataset.e.split(" ");
  for (const [near, far] of [[a, b], [b, a]]) {
    join("b" + near, line);
    if (box(far)) join("b" + near, box(far));
  }
}
for (const cell of svg.querySelectorAll("[data-on]")) {
  join(cell.id, box(cell.dataset.on));
  join("b" + cell.dataset.on, cell);
}

function show() { svg.setAttribute("viewBox", view.join(" ")); }

function scale() { return Math.max(view[2] / svg.clientWidth, view[3] / svg.clientHeight); }

function zoom(factor, x, y) {
  const at = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM().inverse());
  view = [at.x - (at.x - view[0]) * factor, at.y - (at.y - view[1]) * factor, view[2] * factor, view[3] * factor];
  show();
}

function focus(...chosen) {
  for (const element of svg.querySelectorAll(".lit, .chosen")) element.classList.remove("lit", "chosen");
  svg.classList.toggle("focus", chosen.length > 0);
  for (const element of chosen) {
    element.classList.add("lit", "chosen");
    for (const other of joined.get(element.id) ?? []) other.classList.add("lit");
    // The cells of a host's rails come right after its box.
    for (let cell = element.nextElementSibling; cell?.matches(".cell:not(.node)"); cell = cell.nextElementSibling) {
      cell.classList.add("lit");
    }
  }
}

// The box or line under the pointer, or within a few pixels of it: lines are thin.
function under(event) {
  for (const [dx, dy] of [[0, 0], [3, 0], [-3, 0], [0, 3], [0, -3]]) {
    const element = document.elementFromPoint(event.clientX + dx, event.clientY + dy);
    if (told.has(element) && !element.classList.contains("frame")) return element;
  }
  return null;
}

let drag = null;
svg.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, y: event.clientY, view: [...view], moved: false }; });
window.addEventListener("pointermove", (event) => {
  if (drag) {
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    drag.moved ||= Math.abs(dx) + Math.abs(dy) > 4;
    svg.classList.toggle("pans", drag.moved);
    view = [drag.view[0] - dx * scale(), drag.view[1] - dy * scale(), view[2], view[3]];
    if (drag.moved) show();
  }
  const element = drag?.moved ? null : under(event);
  tip.style.display = element ? "block" : "none";
  if (!element) return;
  tip.textContent = told.get(element);
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
});
window.addEventListener("pointerup", (event) => {
  if (drag && !drag.moved) {
    const element = under(event);
    if (element?.id) focus(element); else if (element) line(element); else focus();
  }
  svg.classList.remove("pans");
  drag = null;
});
svg.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(1.0015 ** event.deltaY, event.clientX, event.clientY);
}, { passive: false });

// A line lights up with the boxes at its ends.
function line(element) {
  focus();
  svg.classList.add("focus");
  const ends = (element.dataset.e ?? "").split(" ").map(box).filter(Boolean);
  for (const lit of [element, ...ends]) lit.classList.add("lit");
}

// Search: a whole name first, then the beginnings of names. Enter goes on to the next.
const nodes = [...svg.querySelectorAll("rect.node")].filter((b) => told.has(b));
let hits = [], hit = 0;
function look() {
  const text = search.value.trim().toLowerCase();
  const names = (b) => [told.get(b).split("\n")[0], ...(b.dataset.names ?? "").split(" ")].map((name) => name.toLowerCase());
  const matches = (test) => text ? nodes.filter((b) => names(b).some(test)) : [];
  hits = matches((name) => name === text);
  if (!hits.length) hits = matches((name) => name && text.startsWith(name + "/"));
  if (!hits.length) hits = matches((name) => name.startsWith(text));
  if (!hits.length) hits = matches((name) => name.includes(text));
  found.textContent = text ? `${hits.length} found` : "";
  hit = 0;
  visit();
}
function visit() {
  if (!hits.length) { focus(); return; }
  const chosen = hits[hit % hits.length], at = chosen.getBBox();
  const turned = chosen.transform.baseVal.consolidate()?.matrix;
  const middle = new DOMPoint(at.x + at.width / 2, at.y + at.height / 2).matrixTransform(turned ?? new DOMMatrix());
  const width = Math.min(whole[2], Math.max(at.width * 12, 420)), height = width * whole[3] / whole[2];
  view = [middle.x - width / 2, middle.y - height / 2, width, height];
  show();
  focus(chosen);
  if (hits.length > 1) found.textContent = `${hit % hits.length + 1} of ${hits.length}`;
}
search.addEventListener("input", look);
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") { hit += event.shiftKey ? hits.length - 1 : 1; visit(); }
});
window.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { search.value = found.textContent = ""; hits = []; focus(); }
  if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); search.focus(); }
});
for (const [id, factor] of [["in", 0.7], ["out", 1 / 0.7]]) {
  document.getElementById(id).onclick = () => zoom(factor, innerWidth / 2, innerHeight / 2);
}
document.getElementById("fit").onclick = () => { view = [...whole]; show(); };
