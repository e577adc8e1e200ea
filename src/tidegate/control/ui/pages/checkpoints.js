// The last checkpoints, their distributions, one of them in detail, and how they are configured.

import { mayAct, SavepointDialog, takeCheckpoint } from "../actions.js";
import { CheckpointCharts } from "../charts/checkpoints.js";
import { bytes, count, duration, kindOf, plural } from "../format.js";
import { Id } from "../parts/copy.js";
import { Empty, Facts, Panel } from "../parts/panel.js";
import { Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";
import { go, href } from "../router.js";
import { html, useState } from "../vendor/preact-htm.js";
import { CheckpointDetail } from "./checkpoint.js";

export function Checkpoints({ report, live, route }) {
  const stats = report.checkpoints;
  if (!stats) {
    return html`<h2 class="page-title">Checkpoints</h2>
      <${Panel} title="Off"><${Empty} title="This job takes no checkpoints.">Give it a directory, and it recovers from failures: <code>job.run(checkpoint=tg.Checkpointing(dir="…", interval="10 s"))</code>.<//><//>`;
  }
  const open = (id) => go(href(report.lineage, "checkpoints", id));
  const item = route.item ? Number(route.item) : null;
  return html`<div class="page-head"><h2 class="page-title">Checkpoints</h2>${mayAct(report) && html`<${Buttons} report=${report} live=${live} />`}</div>
    <${Counts} stats=${stats} />
    ${stats.history.length === 0
      ? html`<${Panel} title="History"><${Empty} title="No checkpoint yet.">${nextOne(report)}<//><//>`
      : html`<${Panel} title=${`Last ${plural(Math.min(60, stats.history.length), "checkpoint")}`} aside=${html`<span>click a bar for details</span>`}><${CheckpointCharts} history=${stats.history} pick=${open} /><//>
          ${item !== null && html`<${CheckpointDetail} key=${item} report=${report} id=${item} other=${route.query.with ? Number(route.query.with) : null} />`}
          <${Summary} summary=${stats.summary} />
          <${History} report=${report} history=${stats.history} item=${item} open=${open} />`}
    ${report.checkpoint_config && html`<${Config} config=${report.checkpoint_config} />`}`;
}

function nextOne(report) {
  const interval = report.checkpoint_config?.interval;
  return interval ? `One is due every ${duration(interval)}.` : "No interval is set: checkpoints are taken only when asked for.";
}

function Buttons({ report, live }) {
  const [state, set] = useState({ busy: false, said: null, dialog: false });
  const again = () => live.refresh().catch(() => {});
  const checkpoint = async () => {
    set({ busy: true, said: null, dialog: false });
    try {
      const { checkpointId } = await takeCheckpoint(report);
      set({ busy: false, said: `Checkpoint #${checkpointId} completed.`, dialog: false });
    } catch (error) {
      set({ busy: false, said: error.message, dialog: false });
    }
    again();
  };
  const taken = ({ location }) => {
    set({ busy: false, said: `Savepoint ${location} completed.`, dialog: false });
    again();
  };
  return html`<span class="buttons">
    <span role="status" class="muted">${state.said}</span>
    <button type="button" class="button" disabled=${state.busy} onClick=${checkpoint}>${state.busy ? "Checkpoint in progress…" : "Take a checkpoint"}</button>
    <button type="button" class="button" onClick=${() => set({ ...state, dialog: true })}>Take a savepoint…</button>
    ${state.dialog && html`<${SavepointDialog} report=${report} taken=${taken} close=${() => set((now) => ({ ...now, dialog: false }))} />`}
  </span>`;
}

function Counts({ stats }) {
  const { counts, latest } = stats;
  const cells = [
    ["Completed", count(counts.completed), latest.completed && html`last <${Ago} at=${latest.completed.latest_ack_timestamp} />`],
    ["In progress", count(counts.in_progress), null],
    ["Failed", count(counts.failed), latest.failed && html`last <${Ago} at=${latest.failed.failure_timestamp ?? latest.failed.trigger_timestamp} />`],
    ["Restored", count(counts.restored), latest.restored && html`from #${latest.restored.id} <${Ago} at=${latest.restored.restore_timestamp} />`],
    ["Last savepoint", latest.savepoint ? html`<${Ago} at=${latest.savepoint.latest_ack_timestamp} />` : "none", null],
  ];
  return html`<ul class="strip" aria-label="Counts of checkpoints">
    ${cells.map(([name, value, detail]) => html`<li class=${name === "Failed" && counts.failed ? "warn" : "none"}><span class="question">${name}</span><span class="answer">${value}</span><span class="detail">${detail}</span></li>`)}
  </ul>`;
}

function Summary({ summary }) {
  const rows = [
    { name: "End-to-end duration", show: duration, ...summary.end_to_end_duration },
    { name: "New files", show: bytes, ...summary.checkpointed_size },
    { name: "Full size", show: bytes, ...summary.state_size },
  ];
  const number = (name, title) => ({ name, title, value: (row) => row[name], show: (row) => row.show(row[name]), right: true });
  const columns = [{ name: "name", title: "Completed checkpoints", value: (row) => row.name, wide: true }, number("min", "Minimum"), number("p50", "Median"), number("p99", "99th percentile"), number("max", "Maximum")];
  return html`<${Panel} title="Summary"><${Table} id="summary" label="Summary of completed checkpoints" columns=${columns} rows=${rows} rowKey=${(row) => row.name} compact=${true} /><//>`;
}

function History({ report, history, item, open }) {
  const columns = [
    { name: "id", title: "Id", value: (each) => each.id, show: (each) => html`<a href=${href(report.lineage, "checkpoints", each.id)}>#${each.id}</a>`, right: true },
    { name: "status", title: "Status", value: (each) => each.status, show: (each) => html`<${Status} status=${each.status} />` },
    { name: "kind", title: "Kind", value: kindOf },
    { name: "trigger", title: "Triggered", value: (each) => each.trigger_timestamp, show: (each) => html`<${Ago} at=${each.trigger_timestamp} />`, right: true },
    { name: "took", title: "Duration", value: (each) => each.end_to_end_duration, show: (each) => duration(each.end_to_end_duration), right: true },
    { name: "new", title: "New files", value: (each) => each.checkpointed_size, show: (each) => bytes(each.checkpointed_size), right: true },
    { name: "full", title: "Full size", value: (each) => each.state_size, show: (each) => bytes(each.state_size), right: true },
    { name: "acks", title: "Tasks", value: (each) => each.num_acknowledged_subtasks, show: (each) => `${each.num_acknowledged_subtasks} of ${each.num_subtasks}`, right: true, hint: "Tasks that have acknowledged" },
    { name: "path", title: "Where", value: (each) => each.external_path ?? each.failure_message ?? null, show: where, path: true },
  ];
  return html`<${Panel} title="History"><${Table} id="history" label="History of checkpoints" columns=${columns} rows=${history} first="id" descending=${true} rowKey=${(each) => each.id} selected=${item} onSelect=${(each) => open(each.id)} most=${20} /><//>`;
}

function where(each) {
  if (each.failure_message) return html`<span class="bad-text">${each.failure_message.split("\n")[0]}</span>`;
  if (each.discarded) return html`<span class="muted">no longer retained</span>`;
  return html`<${Id} text=${each.external_path} length=${32} end=${true} />`;
}

function Config({ config }) {
  const ms = (value) => (value ? duration(value) : "none");
  return html`<${Panel} title="Configuration of checkpoints">
    <${Facts} pairs=${[
      ["Mode", config.mode.replaceAll("_", " ")],
      ["Interval", config.interval ? duration(config.interval) : "only when asked for"],
      ["Timeout", ms(config.timeout)],
      ["Minimum pause", ms(config.min_pause)],
      ["At most in progress", count(config.max_concurrent)],
      ["Tolerable failures", count(config.tolerable_failed_checkpoints)],
      ["State backend", config.state_backend],
      ["Kept after the job's end", config.externalization.enabled ? (config.externalization.delete_on_cancellation ? "unless it is canceled" : "always") : "no"],
      ["Unaligned", config.unaligned_checkpoints ? "yes" : "no"],
      ["Directory", config.checkpoint_storage && html`<${Id} text=${config.checkpoint_storage} />`, true],
    ]} />
  <//>`;
}
