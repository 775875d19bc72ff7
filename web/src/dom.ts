// Elements without a framework. Text is text: nothing that comes from a fabric is ever read as HTML.

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
  else if (name.startsWith("--")) element.style.setProperty(name, String(value)); // the policy lets no style attribute in
  else if (name in element && name !== "list" && typeof value !== "string") Object.assign(element, { [name]: value });
  else element.setAttribute(name, value === true ? "" : String(value));
}

function append(element: Element, children: (Child | Child[])[]): void {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child as Node | string);
  }
}

/** Put these in place of what is there. */
export function fill(element: Element, ...children: (Child | Child[])[]): void {
  element.replaceChildren();
  append(element, children);
}

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** Write only what changed: a text that a screen reader or a selection holds is not torn away. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
