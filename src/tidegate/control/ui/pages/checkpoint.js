// One checkpoint: its phases task by task, slowest first, and how it compares with another.

import { get, jobPath } from "../api.js";
import { bytes, count, dollars, duration, kindOf } from "../format.js";
import { CheckFiles } from "../parts/check_files.js";
import { CopyButton, Id } from "../parts/copy.js";
import { Empty, Facts, Failure, Panel } from "../parts/panel.js";
import { Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { Ago, Stamp } from "../parts/time.js";
import { go, href } from "../router.js";
import { html, useEffect, useState } from "../vendor/preact-htm.js";

/** A checkpoint with the part of every task, all levels together. */
async function fetchWhole(job, id, signal) {
  const whole = await get(jobPath(job, "checkpoints", "details", id), { signal });
  const levels = await Promise.all(
    Object.keys(whole.tasks).map(async (vertex) => {
      const { subtasks } = await get(jobPath(job, "checkpoints", "details", id, "subtasks", vertex), { signal });
      return subtasks.map((each) => taskPart(vertex, each));
    }),
  );
  return { ...whole, parts: levels.flat() };
}

function taskPart(vertex, each) {
  const task = `${vertex.replace("level-", "L")}-S${each.index}`;
  if (!each.checkpoint) return { task, pending: true };
  return {
    task,
    pending: false,
    took: each.end_to_end_duration,
    delay: each.start_delay,
    sync: each.checkpoint.sync,
    upload: each.checkpoint.async,
    fresh: each.checkpointed_size,
    full: each.state_size,
    at: each.ack_timestamp,
  };
}

function useWhole(job, id, status) {
  const [state, set] = useState({ whole: null, error: null });
  const [tries, again] = useState(0);
  useEffect(() => {
    if (id === null) return undefined;
    const stopped = new AbortController();
    fetchWhole(job, id, stopped.signal)
      .then((whole) => set({ whole, error: null }))
      .catch((error) => error.name !== "AbortError" && set({ whole: null, error }));
    return () => stopped.abort();
  }, [job, id, status, tries]);
  return { ...(state.whole && state.whole.id !== id ? { whole: null, error: null } : state), retry: () => again((n) => n + 1) };
}

export function CheckpointDetail({ report, id, other }) {
  const status = report.checkpoints.history.find((each) => each.id === id)?.status;
  const { whole, error, retry } = useWhole(report.lineage, id, status);
  const compared = useWhole(report.lineage, other, null);
  const close = html`<a class="button small" href=${href(report.lineage, "checkpoints")}>Close</a>`;
  const aside = html`<${Compare} report=${report} id=${id} other=${other} />${close}`;
  if (error) return html`<${Panel} title=${`Checkpoint #${id}`} aside=${close}><${Failure} error=${error} retry=${retry} /><//>`;
  if (!whole) return html`<${Panel} title=${`Checkpoint #${id}`} aside=${close}><p class="hint">Reading…</p><//>`;
  return html`<${Panel} title=${`Checkpoint #${id}`} aside=${aside}>
    <${Facts} pairs=${[
      ["Status", html`<${Status} status=${whole.status} />`],
      ["Kind", kindOf(whole)],
      ["Triggered", html`<${Stamp} at=${whole.trigger_timestamp} full=${true} />`],
      ["Completed", whole.status === "COMPLETED" ? html`<${Ago} at=${whole.latest_ack_timestamp} />` : null],
      ["Duration", duration(whole.end_to_end_duration)],
      ["New files", bytes(whole.checkpointed_size)],
      ["Shared with earlier ones", bytes(Math.max(0, whole.state_size - whole.checkpointed_size))],
      ["Storage requests", whole.storage && storageUse(whole.storage), true],
      ["Path", whole.external_path && html`<${Id} text=${whole.external_path} />`, true],
      ["Files", whole.external_path && !whole.discarded ? html`<${CheckFiles} job=${report.lineage} path=${whole.external_path} />` : null, true],
    ]} />
    ${whole.failure_message && html`<div class="notice bad"><pre class="message">${whole.failure_message}</pre><${CopyButton} text=${whole.failure_message} /></div>`}
    ${whole.advice && html`<div class="notice"><p>${whole.advice}</p></div>`}
    ${compared.whole ? html`<${Comparison} a=${whole} b=${compared.whole} />` : compared.error && other !== null ? html`<${Failure} error=${compared.error} />` : null}
    <h3>Tasks, slowest first</h3>
    ${whole.parts.length ? html`<${Parts} parts=${whole.parts} />` : html`<${Empty} title="Nothing is stored about its tasks." />`}
  <//>`;
}

function Compare({ report, id, other }) {
  const choices = report.checkpoints.history.filter((each) => each.id !== id);
  const chosen = (event) => go(href(report.lineage, "checkpoints", id, { with: event.target.value }));
  return html`<label class="inline-field">Compare with
    <select value=${other ?? ""} onChange=${chosen}><option value="">none</option>${choices.map((each) => html`<option value=${each.id}>#${each.id} ${each.status === "COMPLETED" ? "" : each.status.toLowerCase().replace("_", " ")}</option>`)}</select>
  </label>`;
}

/** "31 writes, 2 reads, 4 lists, 1 delete · 1.2 MB written · about $0.00018" */
function storageUse({ requests, written_bytes, estimated_cost_dollars: cost }) {
  const kinds = Object.entries(requests).filter(([, number]) => number > 0);
  const made = kinds.map(([kind, number]) => `${count(number)} ${kind}${number === 1 ? "" : "s"}`).join(", ");
  return [made, `${bytes(written_bytes)} written`, ...(cost === null ? [] : [`about ${dollars(cost)}`])].join(" · ");
}

const PHASES = [
  ["delay", "Start delay", "phase-1", "From the trigger until the task began"],
  ["sync", "Snapshot", "phase-3", "Writing the changes of the state; rows wait"],
  ["upload", "Upload", "phase-5", "Uploading files while rows are processed"],
];

function Parts({ parts }) {
  const longest = Math.max(1, ...parts.map((each) => each.took ?? 0));
  const number = (name, title, show, hint) => ({ name, title, value: (each) => each[name] ?? null, show: (each) => (each.pending ? "–" : show(each[name])), right: true, hint });
  const columns = [
    { name: "task", title: "Task", value: (each) => each.task },
    { name: "took", title: "Duration", value: (each) => each.took ?? null, show: (each) => (each.pending ? html`<span class="muted">not acknowledged</span>` : duration(each.took)), right: true },
    { name: "bar", title: "Phases", value: (each) => each.took ?? null, show: (each) => !each.pending && html`<${PhaseBar} part=${each} longest=${longest} />`, wide: true },
    ...PHASES.map(([name, title, , hint]) => number(name, title, duration, hint)),
    number("fresh", "New files", bytes),
    number("full", "Full size", bytes),
    { name: "at", title: "Acknowledged", value: (each) => each.at ?? null, show: (each) => html`<${Stamp} at=${each.at} />`, right: true },
  ];
  return html`<${Table} id="parts" label="Tasks of the checkpoint" columns=${columns} rows=${parts} first="took" descending=${true} rowKey=${(each) => each.task} />
    <ul class="legend">${PHASES.map(([, title, variable]) => html`<li><span class="swatch" style=${{ background: `var(--${variable})` }}></span>${title.toLowerCase()}</li>`)}</ul>`;
}

function PhaseBar({ part, longest }) {
  const name = PHASES.map(([key, title]) => `${title.toLowerCase()} ${duration(part[key])}`).join(", ");
  return html`<span class="phase-bar" role="img" aria-label=${name} title=${name}>
    ${PHASES.map(([key, , variable]) => html`<span style=${{ width: `${(100 * part[key]) / longest}%`, background: `var(--${variable})` }}></span>`)}
  </span>`;
}

const allRequests = ({ requests }) => Object.values(requests).reduce((sum, number) => sum + number, 0);

function Comparison({ a, b }) {
  const slowest = (whole) => Math.max(0, ...whole.parts.filter((each) => !each.pending).map((each) => each.took));
  const rows = [
    { name: "Duration", show: duration, a: a.end_to_end_duration, b: b.end_to_end_duration },
    { name: "Slowest task", show: duration, a: slowest(a), b: slowest(b) },
    { name: "New files", show: bytes, a: a.checkpointed_size, b: b.checkpointed_size },
    { name: "Full size", show: bytes, a: a.state_size, b: b.state_size },
    ...(a.storage && b.storage ? [{ name: "Storage requests", show: count, a: allRequests(a.storage), b: allRequests(b.storage) }] : []),
    { name: "Tasks acknowledged", show: count, a: a.num_acknowledged_subtasks, b: b.num_acknowledged_subtasks },
    ...a.parts.flatMap((part) => {
      const twin = b.parts.find((each) => each.task === part.task);
      return part.pending || !twin || twin.pending ? [] : [{ name: `Duration of ${part.task}`, show: duration, a: part.took, b: twin.took }];
    }),
  ];
  const difference = (row) => row.a - row.b;
  const signed = (row) => (difference(row) === 0 ? "same" : `${difference(row) > 0 ? "+" : "−"}${row.show(Math.abs(difference(row)))}`);
  const columns = [
    { name: "name", title: "Figure", value: (row) => row.name, wide: true },
    { name: "a", title: `#${a.id}`, value: (row) => row.a, show: (row) => row.show(row.a), right: true },
    { name: "b", title: `#${b.id}`, value: (row) => row.b, show: (row) => row.show(row.b), right: true },
    { name: "difference", title: "Difference", value: difference, show: signed, right: true },
  ];
  return html`<h3>#${a.id} compared with #${b.id}</h3><${Table} id="comparison" label="Comparison of two checkpoints" columns=${columns} rows=${rows} rowKey=${(row) => row.name} compact=${true} />`;
}
