// DOM elements without a framework. Text from the fabric is never parsed as HTML.

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, unknown>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props?: Props | null,
  ...children: (Child | Child[])[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  append(element, children);
  return element;
}

function set(element: HTMLElement, name: string, value: unknown): void {
  if (value === undefined || value === null || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
  else if (name.startsWith("--")) element.style.setProperty(name, String(value)); // the policy forbids style attributes
  else if (name in element && name !== "list" && typeof value !== "string") Object.assign(element, { [name]: value });
  else element.setAttribute(name, value === true ? "" : String(value));
}

function append(element: Element, children: (Child | Child[])[]): void {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child as Node | string);
  }
}

/** Replace the children of an element. */
export function fill(element: Element, ...children: (Child | Child[])[]): void {
  element.replaceChildren();
  append(element, children);
}

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** Set the text only if it changed, so that selections and screen readers are not disturbed. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
