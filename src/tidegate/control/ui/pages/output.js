// Per sink: what is committed, what waits, and what went wrong.

import { bytes, plural } from "../format.js";
import { Empty, Panel } from "../parts/panel.js";
import { Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { html } from "../vendor/preact-htm.js";

const words = (name) => name.toLowerCase().replaceAll(/[-_]/g, " ");

const COLUMNS = [
  { name: "sink", title: "Sink", value: (each) => each.sink, wide: true },
  { name: "guarantee", title: "Guarantee", value: (each) => words(each.guarantee) },
  { name: "published", title: "Committed up to", value: (each) => each.published_epoch, show: (each) => (each.published_epoch ? `epoch ${each.published_epoch}` : "nothing yet"), right: true },
  { name: "waiting", title: "Waiting", value: (each) => each.waiting_epochs, show: (each) => (each.waiting_epochs ? plural(each.waiting_epochs, "epoch") : "nothing"), right: true, hint: "Epochs whose output waits for a checkpoint or for the target" },
  { name: "bytes", title: "Waiting size", value: (each) => each.waiting_bytes, show: (each) => bytes(each.waiting_bytes), right: true },
  { name: "since", title: "Waiting since", value: (each) => each.waiting_since, show: (each) => (each.waiting_since ? `epoch ${each.waiting_since}` : "–"), right: true, hint: "The first epoch whose output waits" },
  { name: "state", title: "State", value: (each) => (each.error ? 0 : 1), show: (each) => (each.error ? html`<${Status} status="FAILED" />` : "no error") },
];

export function Output({ report }) {
  const failing = report.sinks.filter((each) => each.error);
  return html`<h2 class="page-title">Output</h2>
    ${report.held_by && html`<div class="notice warn"><p><strong>Sink ${report.held_by} holds the job.</strong> Too much of its output waits to be committed, so the job takes no further rows until the target accepts some.</p></div>`}
    <${Panel} title=${plural(report.sinks.length, "sink")}>
      ${report.sinks.length ? html`<${Table} id="sinks" label="Sinks" columns=${COLUMNS} rows=${report.sinks} first="sink" rowKey=${(each) => each.sink} />` : html`<${Empty} title="This job has no sink.">Its results stay in its state.<//>`}
    <//>
    ${failing.map((each) => html`<${Panel} key=${each.sink} title=${`Error of ${each.sink}`}><pre class="message">${each.error}</pre><//>`)}
    <p class="hint">Output of an exactly-once sink is committed when the checkpoint that contains its epoch completes. ${report.checkpoint_config ? "" : "Without checkpoints it is committed at the end of each epoch."}</p>`;
}
