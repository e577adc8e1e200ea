// Status of a job or a checkpoint: a shape, a colour and a word.

import { html } from "../vendor/preact-htm.js";

const TONES = {
  RUNNING: "ok",
  COMPLETED: "ok",
  FINISHED: "none",
  CANCELED: "none",
  IN_PROGRESS: "run",
  RESTARTING: "warn",
  CANCELLING: "warn",
  INITIALIZING: "warn",
  FAILED: "bad",
  LOST: "bad",
};

const WORDS = { IN_PROGRESS: "in progress", INITIALIZING: "starting", CREATED: "starting", CANCELLING: "stopping", LOST: "Driver gone" };

/** A circle, a triangle, a square with a cross, a ring: distinct without colour. */
export function Shape({ tone }) {
  return html`<svg class=${`shape ${tone}`} viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">${DRAWN[tone]()}</svg>`;
}

const DRAWN = {
  ok: () => html`<circle cx="6" cy="6" r="5" />`,
  run: () => html`<circle cx="6" cy="6" r="4" class="ring" /><circle cx="6" cy="6" r="1.5" />`,
  warn: () => html`<path d="M6 .8 11.6 11H.4z" />`,
  bad: () => html`<rect x=".5" y=".5" width="11" height="11" rx="1.5" /><path class="cross" d="M3.5 3.5l5 5m0-5l-5 5" />`,
  none: () => html`<circle cx="6" cy="6" r="4" class="ring" />`,
};

/** `ended`: how a job ended, in words. Its status is Flink's, which calls every stop canceled. */
export function Status({ status, ended }) {
  const tone = TONES[status] ?? "none";
  return html`<span class=${`status ${tone}`}><${Shape} tone=${tone} />${ended ?? WORDS[status] ?? status.toLowerCase().replaceAll("_", " ")}</span>`;
}
