// Text that can be copied.

import { short } from "../format.js";
import { html, useState } from "../vendor/preact-htm.js";

const SHOWN_MS = 1500;

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text); // Pages that are neither HTTPS nor on loopback have no clipboard.
  }
}

function copyBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function CopyButton({ text, label = "Copy", quiet = false }) {
  const [copied, set] = useState(false);
  const act = async (event) => {
    event.stopPropagation();
    await copy(text);
    set(true);
    setTimeout(() => set(false), SHOWN_MS);
  };
  const name = copied ? "Copied" : label;
  if (!quiet) return html`<button type="button" class="button small" onClick=${act} aria-live="polite">${name}</button>`;
  return html`<button type="button" class="copy" onClick=${act} title=${name} aria-label=${`${name}: ${text}`}>
    <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      ${copied
        ? html`<path d="M3 8.5l3.5 3.5L13 4.5" />`
        : html`<rect x="5.5" y="5.5" width="8" height="8" rx="1.5" /><path d="M10.5 3.5V3A1 1 0 0 0 9.5 2H3a1 1 0 0 0-1 1v6.5a1 1 0 0 0 1 1h.5" />`}
    </svg>
  </button>`;
}

/** An id or a path, with a button that copies all of it. `length`: how many characters are shown; with `end`, the last ones.
 * `shown`: what people call it, if not by its id. */
export function Id({ text, shown = text, length = null, end = false }) {
  if (!text) return "–";
  return html`<span class="id"><code title=${shown === text ? text : `${shown} · ${text}`}>${length ? short(shown, length, end) : shown}</code><${CopyButton} text=${text} quiet=${true} /></span>`;
}
