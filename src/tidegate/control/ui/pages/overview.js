// Is it healthy, does it keep up, when was the last checkpoint, which task is slowest, what went wrong last?

import { EpochCharts } from "../charts/epochs.js";
import { Swatch } from "../charts/chart.js";
import { rowSkew, stateSize } from "../figures.js";
import { bytes, count, duration, estimated, percent, plural, times } from "../format.js";
import { Graph, WorkBar } from "../graph.js";
import { Id } from "../parts/copy.js";
import { Empty, Panel, Redacted } from "../parts/panel.js";
import { Shape } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { Ago, Stamp } from "../parts/time.js";
import { go, href } from "../router.js";
import { html } from "../vendor/preact-htm.js";

export function Overview({ report, route }) {
  const selected = route.query.node ?? null;
  const node = report.graph.nodes.find((each) => each.uid === selected);
  const select = (uid) => go(href(report.lineage, "overview", null, { node: uid }));
  return html`<${Strip} report=${report} />
    <${Panel} title="Graph" aside=${html`<${Watermark} report=${report} /><${WorkLegend} />`}>
      ${report.graph.nodes.length ? html`<${Graph} report=${report} selected=${selected} select=${select} />` : html`<${Empty} title="The graph of this job is not stored." />`}
    <//>
    ${node && html`<${NodePanel} report=${report} node=${node} close=${() => select(null)} />`}
    <${Panel} title=${["Epochs", "Last epoch"][report.epochs.length] ?? `Last ${plural(report.epochs.length, "epoch")}`}>
      ${report.epochs.length ? html`<${EpochCharts} epochs=${report.epochs} />` : html`<${Empty} title="No epoch has ended yet.">The first one ends when the sources have delivered rows and all tasks have processed them.<//>`}
    <//>
    <${Sources} report=${report} />
    ${!node && html`<${Panel} title="Tasks"><${Tasks} report=${report} tasks=${report.tasks} /><//>`}`;
}

/** The answers are the server's: the command line and notebooks show the same ones. Only ages grow here. */
function Strip({ report }) {
  return html`<ul class="strip" aria-label="State of the job">
    ${report.answers.map((each) => html`<li key=${each.question} class=${each.tone}>
      <span class="question">${each.question}</span>
      <span class="answer"><${Shape} tone=${each.tone} /><span>${each.answer_at_ms ? html`<${Ago} at=${each.answer_at_ms} />` : each.answer}</span></span>
      <span class="detail">${each.detail} ${each.at_ms && html`<${Ago} at=${each.at_ms} />`} ${each.page && html`<a href=${href(report.lineage, each.page, each.item)}>details</a>`}</span>
    </li>`)}
  </ul>`;
}

function Watermark({ report }) {
  if (report.watermark_ms === null) return null;
  return html`<span>watermark <${Stamp} at=${report.watermark_ms} />, <${Ago} at=${report.watermark_ms} suffix=" behind" /></span>`;
}

function WorkLegend() {
  return html`<ul class="legend inline">
    <li><${Swatch} variable="busy" />busy</li><li><${Swatch} variable="held" />held</li><li><${Swatch} variable="idle" />idle</li>
  </ul>`;
}

function Sources({ report }) {
  if (!report.sources.length) return null;
  const columns = [
    { name: "source", title: "Source", value: (each) => each.source, wide: true },
    { name: "lag", title: "Event time lag", value: (each) => each.event_time_lag_ms, show: (each) => duration(each.event_time_lag_ms), right: true },
    { name: "pending", title: "Pending rows", value: (each) => each.pending_rows, show: (each) => count(each.pending_rows), right: true },
  ];
  return html`<${Panel} title="Sources"><${Table} id="sources" label="Sources" columns=${columns} rows=${report.sources} first="source" rowKey=${(each) => each.source} compact=${true} /><//>`;
}

function NodePanel({ report, node, close }) {
  const tasks = report.tasks.filter((each) => each.level === node.level && node.level > 0);
  const hot = report.hot_keys?.[node.uid] ?? report.hot_keys?.[node.name] ?? [];
  const spans = (report.spans ?? []).filter((each) => each.operator === node.uid || each.operator === node.name);
  const others = report.graph.nodes.filter((each) => each.level === node.level && each.uid !== node.uid && node.level > 0);
  return html`<${Panel} id="node" title=${node.uid} aside=${html`<span>${node.kind}${node.label && node.label !== node.uid ? ` · ${node.label}` : ""}</span><button type="button" class="button small" onClick=${close}>Close</button>`}>
    ${node.states.length > 0 && html`<div class="chips" aria-label="States">${node.states.map((each) => html`<span class="chip"><b>${each.name}</b> ${each.type}${stateSize(report, node.uid, each.name) === null ? "" : html` <span title="Estimated from the files of the state on local disk">${estimated(stateSize(report, node.uid, each.name))}</span>`}</span>`)}</div>`}
    ${tasks.length ? html`<${Tasks} report=${report} tasks=${tasks} />` : html`<${Empty} title="This node has no task of its own.">${node.level === 0 ? "Spark runs the source stage." : "No task has reported yet."}<//>`}
    ${tasks.length > 0 && others.length > 0 && html`<p class="hint">These tasks also run ${others.map((each) => each.uid).join(", ")}, with which the figures are shared.</p>`}
    ${spans.length > 0 && html`<${Spans} spans=${spans} />`}
    ${hot.length > 0 && html`<${HotKeys} hot=${hot} />`}
  <//>`;
}

function Spans({ spans }) {
  const time = (name, title, value, hint) => ({ name, title, value, show: (each) => duration(value(each)), right: true, hint });
  const columns = [
    { name: "span", title: "Part", value: (each) => each.span, wide: true },
    { name: "uses", title: "Uses", value: (each) => each.uses, show: (each) => count(each.uses), right: true },
    time("total", "Total", (each) => each.total_ms, "Over all tasks and epochs of the run"),
    time("mean", "Mean", (each) => each.total_ms / Math.max(1, each.uses)),
    time("longest", "Longest", (each) => each.longest_ms, "Far above the mean: a few rows are slow"),
    { name: "key", title: "Key of the longest", value: (each) => each.longest_key, show: (each) => (each.longest_key === null ? html`<${Redacted} />` : html`<code>${each.longest_key}</code>`) },
  ];
  return html`<h3>Parts of the function, measured with <code>ctx.span</code></h3>
    <${Table} id="spans" label="Parts of the function" columns=${columns} rows=${spans} first="total" descending=${true} rowKey=${(each) => each.span} compact=${true} />`;
}

function HotKeys({ hot }) {
  return html`<h3>Hot keys</h3>
    <ol class="hot-keys">
      ${hot.map(([key, share]) => html`<li><span class="hot-key">${key === null ? html`<${Redacted} />` : html`<code>${text(key)}</code>`}</span><span class="hot-bar"><span style=${{ width: `${Math.min(100, share * 100)}%` }}></span></span><span class="right">${percent(share)} of rows</span></li>`)}
    </ol>`;
}

const text = (key) => (typeof key === "string" ? key : JSON.stringify(key));

/** Its name; a record of an older version has only its id. */
const hostOf = (task) => task.host_name || task.host;

function Tasks({ report, tasks }) {
  if (!tasks.length) return html`<${Empty} title="No task has reported yet.">Tasks report at the end of each epoch.<//>`;
  const number = (name, title, show, hint) => ({ name, title, value: (each) => each[name] ?? null, show: (each) => show(each[name]), right: true, hint });
  const columns = [
    { name: "task", title: "Task", value: (each) => each.task },
    { name: "busy", title: "Busy", value: (each) => each.busy, show: (each) => html`<span class="with-bar">${percent(each.busy)}<${WorkBar} work=${each} /></span>`, right: true },
    number("held", "Held", percent, "Waiting until the output is read"),
    number("rows_in", "Rows in", count),
    { name: "skew", title: "Skew", value: (each) => rowSkew(report, each), show: (each) => times(rowSkew(report, each)), right: true, hint: "Rows in, as a multiple of the mean of the level" },
    number("rows_out", "Rows out", count),
    number("state_bytes", "State", bytes),
    number("resident_bytes", "Memory", bytes, "Resident memory of the Python worker"),
    number("fired_timers", "Timers fired", count),
    number("late_dropped", "Late rows", count, "Rows that were too late for all their windows, and were dropped"),
    number("restore_ms", "Restore", duration, "Time to open the state in the last epoch"),
    number("seal_ms", "Seal", duration, "Time to write the changes of the last epoch"),
    { name: "host", title: "Host", value: hostOf, show: (each) => html`<${Id} text=${each.host} shown=${hostOf(each)} length=${20} />`, hint: "Copies the id of the disk that has its state" },
  ];
  return html`<${Table} id="tasks" label="Tasks" columns=${columns} rows=${tasks} first="busy" descending=${true} rowKey=${(each) => each.task} />`;
}
