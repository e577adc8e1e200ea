// A titled part of a page, and the notes that stand where there is nothing to show.

import { html } from "../vendor/preact-htm.js";

export function Panel({ title, aside, children, id }) {
  return html`<section class="panel" aria-label=${title} id=${id}>
    <header class="panel-head"><h2>${title}</h2>${aside && html`<div class="aside">${aside}</div>`}</header>
    ${children}
  </section>`;
}

/** Why there is nothing here, and what would change that. */
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children && html`<p>${children}</p>`}</div>`;
}

export function Failure({ error, retry }) {
  return html`<div class="notice bad" role="alert">
    <p>${error.message}</p>
    ${retry && html`<button type="button" class="button small" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** Name and value pairs. Pairs without a value are left out. */
export function Facts({ pairs }) {
  return html`<dl class="facts">
    ${pairs.filter(([, value]) => value !== undefined && value !== null).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

const REASON = "Hidden: this server was started without permission to show keys and values.";

export function Redacted() {
  return html`<span class="redacted" title=${REASON}>redacted</span>`;
}

export function RedactedReason() {
  return html`<p class="hint">${REASON}</p>`;
}
