// Ask for a token.

import { byId } from "./dom";

export function askToken(why: string): Promise<string> {
  const dialog = byId<HTMLDialogElement>("login");
  const input = byId<HTMLInputElement>("token");
  byId("login-why").textContent = why;
  input.value = "";
  dialog.oncancel = (event) => event.preventDefault(); // the page needs a token
  if (!dialog.open) dialog.showModal();
  return new Promise((done) => {
    dialog.onclose = () => done(input.value.trim());
  });
}
