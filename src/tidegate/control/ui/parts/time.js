// Times: relative, with the absolute time and its zone on hover.

import { useNow } from "../clock.js";
import { absolute, age, clock, UNKNOWN } from "../format.js";
import { html } from "../vendor/preact-htm.js";

/** "12 s ago"; Flink's unknown times are -1. */
export function Ago({ at, suffix = " ago" }) {
  const now = useNow();
  if (!at || at < 0) return UNKNOWN;
  const ms = now - at;
  const text = ms < -1500 ? `in ${age(-ms)}` : age(ms) + suffix;
  return html`<time datetime=${new Date(at).toISOString()} title=${absolute(at)}>${text}</time>`;
}

/** "14:02:11", or the full time with its zone. */
export function Stamp({ at, full = false }) {
  if (!at || at < 0) return UNKNOWN;
  const text = full ? absolute(at) : clock(at);
  return html`<time datetime=${new Date(at).toISOString()} title=${absolute(at)}>${text}</time>`;
}
