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

/** Names with their values, in as many columns as fit; a third element that is true takes a whole line. Without a value: left out. */
export function Facts({ pairs }) {
  return html`<dl class="facts">
    ${pairs.filter(([, value]) => value !== undefined && value !== null).map(([name, value, wide]) => html`<div class=${wide ? "whole" : ""}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

const REASON = "This server hides keys and values. Start it with --show-values (tg.serve(…, show_values=True)) to see them.";

export function Redacted() {
  return html`<span class="redacted" title=${REASON}>redacted</span>`;
}

export function RedactedReason() {
  return html`<p class="hint">${REASON}</p>`;
}
