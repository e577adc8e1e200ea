// Whether the files of a snapshot are there.

import { get, jobPath } from "../api.js";
import { bytes, plural } from "../format.js";
import { html, useState } from "../vendor/preact-htm.js";
import { CopyButton } from "./copy.js";
import { Shape } from "./status.js";

export function CheckFiles({ job, path }) {
  const [state, set] = useState({ busy: false, found: null, error: null });
  const check = async () => {
    set({ busy: true, found: null, error: null });
    try {
      set({ busy: false, found: await get(`${jobPath(job, "snapshots", "check")}?snapshot=${encodeURIComponent(path)}`), error: null });
    } catch (error) {
      set({ busy: false, found: null, error });
    }
  };
  return html`<span class="check-files">
    <button type="button" class="button small" disabled=${state.busy} title="Whether all its files exist with their sizes" onClick=${check}>${state.busy ? "Checking…" : "Check files"}</button>
    <span role="status">${state.error ? html`<span class="status bad"><${Shape} tone="bad" />${state.error.message}</span>` : state.found && html`<${Found} found=${state.found} path=${path} />`}</span>
  </span>`;
}

function Found({ found, path }) {
  const { problems, files, whole } = found;
  if (problems.length) return html`<span class="status bad long"><${Shape} tone="bad" />${problems.map((each) => `${each.where}: ${each.what}`).join("; ")}</span>`;
  if (!files && whole) return html`<span class="status ok"><${Shape} tone="ok" />complete: all of it is in its metadata</span>`;
  const seen = `${plural(files, "file")}, ${bytes(found.bytes)}`;
  if (!whole) return html`<span class="status warn long"><${Shape} tone="warn" />${seen} present; the time was over before all were looked at</span>`;
  return html`<span class="status ok"><${Shape} tone="ok" />${seen} present</span> <${CopyButton} text=${`tidegate checkpoints verify ${path}`} label="Copy the command that compares contents" quiet=${true} />`;
}
