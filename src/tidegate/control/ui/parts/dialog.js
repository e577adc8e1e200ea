// A dialog that asks before something happens.

import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";

/** `act` returns a promise; the dialog shows its error, or closes. `danger`: the action ends the job or deletes files. */
export function Dialog({ title, children, confirm, danger = false, act, close }) {
  const element = useRef(null);
  const [state, set] = useState({ busy: false, error: null });
  useEffect(() => {
    element.current.showModal();
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    set({ busy: true, error: null });
    try {
      await act(new FormData(event.target));
      close();
    } catch (error) {
      set({ busy: false, error });
    }
  };
  return html`<dialog ref=${element} onClose=${close} aria-label=${title}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      ${children}
      ${state.error && html`<p class="notice bad" role="alert">${state.error.message}</p>`}
      <div class="buttons">
        <button type="button" class="button" onClick=${() => element.current.close()}>Back</button>
        <button type="submit" class=${`button ${danger ? "danger" : "primary"}`} disabled=${state.busy}>${state.busy ? "Sent, waiting…" : confirm}</button>
      </div>
    </form>
  </dialog>`;
}
