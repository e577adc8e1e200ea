// What a person can make a job do: checkpoint, savepoint, stop, cancel. Absent where the server does not allow it.

import { finished, jobPath, patch, post } from "./api.js";
import { Dialog } from "./parts/dialog.js";
import { html, useState } from "./vendor/preact-htm.js";

export function mayAct(report) {
  return report.allows.actions && report.live && report.status === "RUNNING";
}

export async function takeCheckpoint(report) {
  const { "request-id": id } = await post(jobPath(report.lineage, "checkpoints"));
  return finished(jobPath(report.lineage, "checkpoints", id));
}

export async function takeSavepoint(report, form) {
  const body = { "target-directory": form.get("target") || null, formatType: form.get("format") };
  const { "request-id": id } = await post(jobPath(report.lineage, "savepoints"), body);
  return finished(jobPath(report.lineage, "savepoints", id));
}

async function stop(report, form) {
  const body = { targetDirectory: form.get("target") || null, drain: form.get("drain") === "on", formatType: form.get("format") };
  const { "request-id": id } = await post(jobPath(report.lineage, "stop"), body);
  return finished(jobPath(report.lineage, "savepoints", id));
}

export async function dispose(path) {
  const { "request-id": id } = await post("savepoint-disposal", { "savepoint-path": path });
  return finished(`savepoint-disposal/${encodeURIComponent(id)}`);
}

export function SavepointFields() {
  return html`<label class="field">Directory<input name="target" placeholder="the configured savepoint directory" autocomplete="off" spellcheck="false" /></label>
    <label class="field">Format<select name="format"><option value="CANONICAL">canonical: readable as Parquet, restores to any backend</option><option value="NATIVE">native: quick, for the same backend</option></select></label>`;
}

export function SavepointDialog({ report, close, taken }) {
  const act = async (form) => taken(await takeSavepoint(report, form));
  return html`<${Dialog} title=${`Take a savepoint of ${report.job}`} confirm="Take the savepoint" act=${act} close=${close}>
    <p>The job continues. A savepoint is kept until you dispose of it.</p>
    <${SavepointFields} />
  <//>`;
}

export function Actions({ report, live, connected }) {
  const [asked, ask] = useState(null);
  if (!mayAct(report) || !connected) return null;
  const close = () => ask(null);
  const again = () => live.refresh().catch(() => {});
  return html`<span class="buttons">
    <button type="button" class="button small" onClick=${() => ask("stop")}>Stop…</button>
    <button type="button" class="button small" onClick=${() => ask("cancel")}>Cancel…</button>
    ${asked === "stop" && html`<${Dialog} title=${`Stop ${report.job}?`} confirm=${`Stop ${report.job}`} danger=${true} act=${(form) => stop(report, form).finally(again)} close=${close}>
      <p>The job takes a savepoint and ends. All output up to the savepoint is committed.</p>
      <${SavepointFields} />
      <label class="check"><input type="checkbox" name="drain" /> Drain: fire all timers and windows first. Do not drain a job that you want to continue.</label>
    <//>`}
    ${asked === "cancel" && html`<${Dialog} title=${`Cancel ${report.job}?`} confirm=${`Cancel ${report.job}`} danger=${true} act=${() => patch(`${jobPath(report.lineage)}?mode=cancel`).finally(again)} close=${close}>
      <p>The job ends at once, without a savepoint. Output since the last checkpoint is not committed; a new start repeats it.</p>
    <//>`}
  </span>`;
}
