// Savepoints and retained checkpoints: what they contain, and whether the running code can restore them.

import { dispose, mayAct, SavepointDialog } from "../actions.js";
import { jobPath } from "../api.js";
import { bytes, plural } from "../format.js";
import { CheckFiles } from "../parts/check_files.js";
import { Id } from "../parts/copy.js";
import { Dialog } from "../parts/dialog.js";
import { useLoaded } from "../parts/load.js";
import { Empty, Failure, Panel } from "../parts/panel.js";
import { Shape } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";
import { href } from "../router.js";
import { html, useState } from "../vendor/preact-htm.js";

export function Savepoints({ report, live }) {
  const newest = report.checkpoints?.counts.completed ?? 0;
  const { data, error, reload } = useLoaded(report.checkpoints ? jobPath(report.lineage, "snapshots") : null, newest);
  const [asked, ask] = useState(null);
  const [said, say] = useState(null);
  const again = () => {
    reload();
    live.refresh().catch(() => {});
  };
  const taken = ({ location }) => {
    say(`Savepoint ${location} completed.`);
    again();
  };
  const savepoints = data?.snapshots.filter((each) => each.kind === "SAVEPOINT") ?? [];
  const checkpoints = data?.snapshots.filter((each) => each.kind !== "SAVEPOINT") ?? [];
  const table = { report, ask: report.allows.actions ? ask : null };
  return html`<div class="page-head"><h2 class="page-title">Savepoints</h2>
      <span class="buttons"><span role="status" class="muted">${said}</span>${mayAct(report) && html`<button type="button" class="button" onClick=${() => ask({ take: true })}>Take a savepoint…</button>`}</span>
    </div>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${!report.checkpoints && html`<${Panel} title="No savepoint"><${Empty} title="This job takes neither checkpoints nor savepoints.">Both need a directory: <code>job.run(checkpoint=tg.Checkpointing(dir="…"))</code>.<//><//>`}
    ${report.checkpoints && !data && !error && html`<p class="hint">Reading…</p>`}
    ${data && html`<${Panel} title=${savepoints.length ? plural(savepoints.length, "savepoint") : "No savepoint"}>
      ${savepoints.length ? html`<${Snapshots} id="savepoints" label="Savepoints" rows=${savepoints} ...${table} />` : html`<${Empty} title="No savepoint of this job is known.">Take one before you change the job: <code>tidegate savepoint ${report.job}</code>. It stays until you dispose of it.<//>`}
    <//>
    <${Panel} title=${checkpoints.length ? `${plural(checkpoints.length, "retained checkpoint")}` : "No retained checkpoint"}>
      ${checkpoints.length ? html`<${Snapshots} id="retained" label="Retained checkpoints" rows=${checkpoints} report=${report} ask=${null} />` : html`<${Empty} title="No checkpoint is retained." />`}
    <//>`}
    ${asked?.take && html`<${SavepointDialog} report=${report} taken=${taken} close=${() => ask(null)} />`}
    ${asked?.dispose && html`<${Dialog} title="Dispose of this savepoint?" confirm="Delete its files" danger=${true} act=${() => dispose(asked.dispose).then(again)} close=${() => ask(null)}>
      <p>The files of this savepoint of ${report.job} are deleted. A job that was started from it without claiming it no longer can be.</p>
      <p><code class="value">${asked.dispose}</code></p>
    <//>`}`;
}

/** Compare the operators of a snapshot with those of the running code that have state. */
export function compatibility(report, snapshot) {
  const stateful = report.graph.nodes.filter((each) => each.states.length).map((each) => each.uid);
  const known = report.graph.nodes.map((each) => each.uid);
  return {
    gone: snapshot.operators.filter((uid) => !known.includes(uid)),
    fresh: stateful.filter((uid) => !snapshot.operators.includes(uid)),
  };
}

function Compatibility({ report, snapshot }) {
  if (!report.graph.nodes.length) return html`<span class="muted">unknown</span>`;
  const { gone, fresh } = compatibility(report, snapshot);
  if (!gone.length && !fresh.length) return html`<span class="status ok"><${Shape} tone="ok" />all operators present</span>`;
  return html`<span class="status warn long"><${Shape} tone="warn" />${[gone.length && `not in the code: ${gone.join(", ")}`, fresh.length && `starts empty: ${fresh.join(", ")}`].filter(Boolean).join("; ")}</span>`;
}

function Snapshots({ id, label, rows, report, ask }) {
  const columns = [
    { name: "name", title: "Path", value: (each) => each.path, show: (each) => html`<${Id} text=${each.path} />${each.restart_from && html` <span class="chip">next start</span>`}`, path: true },
    { name: "taken", title: "Taken", value: (each) => each.at_ms, show: (each) => html`<${Ago} at=${each.at_ms} />`, right: true },
    { name: "size", title: "Size", value: (each) => each.size_bytes, show: (each) => bytes(each.size_bytes), right: true },
    { name: "format", title: "Format", value: (each) => each.format?.toLowerCase() },
    { name: "operators", title: "Operators", value: (each) => each.operators.length, show: (each) => each.operators.join(", ") || "none", wide: true },
    { name: "fits", title: "With this job's code", value: (each) => compatibility(report, each).gone.length, show: (each) => html`<${Compatibility} report=${report} snapshot=${each} />`, wide: true },
    { name: "open", title: "Contents", value: (each) => each.path, show: (each) => html`<span class="buttons single"><a href=${href(report.lineage, "state", null, { snapshot: each.path })}>open</a><${CheckFiles} job=${report.lineage} path=${each.path} />${ask && html`<button type="button" class="button small" onClick=${() => ask({ dispose: each.path })}>Dispose…</button>`}</span>` },
  ];
  return html`<${Table} id=${id} label=${label} columns=${columns} rows=${rows} first="taken" descending=${true} rowKey=${(each) => each.path} />`;
}
