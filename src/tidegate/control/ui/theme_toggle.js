// Light, dark, or as the system has it. `theme.js` applies the choice.

import { html, useState } from "./vendor/preact-htm.js";

const KEY = "tidegate-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const ICONS = {
  system: () => html`<circle cx="8" cy="8" r="5.5" /><path class="full" d="M8 2.5a5.5 5.5 0 0 1 0 11z" />`,
  light: () => html`<circle cx="8" cy="8" r="3" /><path d="M8 1v2m0 10v2M1 8h2m10 0h2M3 3l1.5 1.5m7 7L13 13m0-10-1.5 1.5m-7 7L3 13" />`,
  dark: () => html`<path d="M13 9.8A5.5 5.5 0 1 1 6.2 3a4.5 4.5 0 0 0 6.8 6.8z" />`,
};

function kept() {
  try {
    return localStorage.getItem(KEY) ?? "system";
  } catch {
    return "system";
  }
}

function keep(theme) {
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // Storage is switched off: the system's theme stays.
  }
  dispatchEvent(new Event("tidegate-theme"));
}

export function ThemeToggle() {
  const [theme, set] = useState(kept);
  const change = () => {
    keep(NEXT[theme]);
    set(kept());
  };
  return html`<button type="button" class="icon-button" onClick=${change} title=${`Theme: ${theme}`} aria-label=${`Theme: ${theme}. Change to ${NEXT[theme]}.`}>
    <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">${ICONS[theme]()}</svg>
  </button>`;
}
