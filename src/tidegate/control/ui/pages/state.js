// What is in the state: operators, states, types and sizes; one key across all states; the first entries of a state.

import { jobPath } from "../api.js";
import { stateSize } from "../figures.js";
import { bytes, duration, estimated, plural } from "../format.js";
import { CopyButton, Id } from "../parts/copy.js";
import { useLoaded } from "../parts/load.js";
import { Empty, Facts, Failure, Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";
import { go, href } from "../router.js";
import { html } from "../vendor/preact-htm.js";
import { Entries, KeyLookup } from "./state_values.js";

export function State({ report, route }) {
  const { lineage } = report;
  const chosen = route.query.snapshot ?? null;
  const newest = report.checkpoints?.latest.completed?.id ?? null;
  const stored = chosen || newest !== null || report.checkpoints?.counts.restored > 0;
  const query = chosen ? `?snapshot=${encodeURIComponent(chosen)}` : "";
  const { data, error, reload } = useLoaded(stored ? `${jobPath(lineage, "state")}${query}` : null, chosen ? 0 : newest);
  const list = useLoaded(stored ? jobPath(lineage, "snapshots") : null, newest);
  const at = (change) => href(lineage, "state", null, { snapshot: chosen, ...change });
  return html`<div class="page-head"><h2 class="page-title">State</h2><${Chooser} snapshots=${list.data?.snapshots ?? []} chosen=${chosen} lineage=${lineage} /></div>
    ${!stored && html`<${NoSnapshot} report=${report} />`}
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${stored && !data && !error && html`<p class="hint">Reading the metadata of the snapshot…</p>`}
    ${data && html`<${Contents} report=${report} data=${data} route=${route} at=${at} />`}`;
}

function NoSnapshot({ report }) {
  const why = report.checkpoints ? "It can be read as soon as the first checkpoint is complete." : "State can be read from checkpoints and savepoints, and this job takes no checkpoints.";
  return html`<${Panel} title="Nothing to read"><${Empty} title="There is no snapshot of the state yet.">${why}<//><//>`;
}

function Chooser({ snapshots, chosen, lineage }) {
  if (!snapshots.length) return null;
  const choose = (event) => go(href(lineage, "state", null, { snapshot: event.target.value }));
  return html`<label class="inline-field">Snapshot
    <select value=${chosen ?? ""} onChange=${choose}>
      <option value="">latest completed checkpoint</option>
      ${snapshots.map((each) => html`<option key=${each.path} value=${each.path}>${each.kind.toLowerCase()} ${each.kind === "CHECKPOINT" ? `#${each.id}` : each.path.split("/").filter(Boolean).at(-1)}</option>`)}
    </select>
  </label>`;
}

function Contents({ report, data, route, at }) {
  if (!data.operators.length) return html`<${Panel} title="No state"><${Empty} title="This snapshot holds no state.">None of the job's operators declares any.<//><//>`;
  const now = (operator, state) => (route.query.snapshot ? null : stateSize(report, operator.uid, state.name));
  const rows = data.operators.flatMap((operator) => operator.states.map((state) => ({ ...state, operator, now: now(operator, state) })));
  const uid = data.operators.some((each) => each.uid === route.query.uid) ? route.query.uid : data.operators[0].uid;
  const open = rows.find((each) => each.operator.uid === route.query.uid && each.name === route.query.state);
  return html`<${Panel} title="Snapshot">
      <${Facts} pairs=${[
        ["Taken", html`<${Ago} at=${data.at_ms} />`],
        ["Operators", plural(data.operators.length, "operator")],
        ["Size", bytes(sizeOf(data.operators))],
        ["Path", html`<${Id} text=${data.snapshot} />`, true],
      ]} />
    <//>
    <${KeyLookup} report=${report} data=${data} uid=${uid} choose=${(next) => go(at({ uid: next }))} snapshot=${route.query.snapshot ?? null} />
    <${Panel} title=${plural(rows.length, "state")}><${States} rows=${rows} at=${at} open=${open} /><//>
    ${open && html`<${Entries} report=${report} operator=${open.operator} state=${open} snapshot=${route.query.snapshot ?? null} close=${at({})} />`}
    <${Snippet} data=${data} row=${open ?? rows[0]} />`;
}

/** Operators of a level share their files. */
function sizeOf(operators) {
  const byLevel = new Map(operators.map((each) => [each.level, each.bytes]));
  return [...byLevel.values()].reduce((total, each) => total + each, 0);
}

/** The type of a value, and before it that of a map's key. */
function typeOf(state) {
  return state.map_key_type ? `${state.map_key_type} → ${state.type}` : state.type;
}

function States({ rows, at, open }) {
  const columns = [
    { name: "operator", title: "Operator", value: (each) => each.operator.uid, wide: true },
    { name: "state", title: "State", value: (each) => each.name, wide: true },
    { name: "kind", title: "Kind", value: (each) => each.kind.replaceAll("_", " ") },
    { name: "key", title: "Key", value: (each) => each.operator.key_type, show: (each) => html`<code class="value">${each.distribution === "keyed" ? each.operator.key_type : each.distribution}</code>`, wide: true, hint: "Columns of the key; for operator state, how it is distributed" },
    { name: "type", title: "Type", value: typeOf, show: (each) => html`<code class="value">${typeOf(each)}</code>`, wide: true },
    { name: "ttl", title: "Time to live", value: (each) => each.ttl_ms, show: (each) => (each.ttl_ms ? duration(each.ttl_ms) : "unlimited"), right: true },
    { name: "bytes", title: "Size", value: (each) => each.bytes ?? each.now, show: (each) => (each.bytes === null && each.now !== null ? estimated(each.now) : bytes(each.bytes)), right: true, hint: "≈: estimated, in the job's last epochs. Otherwise unknown where states share files, as in checkpoints and native savepoints" },
    { name: "open", title: "Entries", value: (each) => each.name, show: (each) => html`<a href=${at({ uid: each.operator.uid, state: each.name })}>show first</a>` },
  ];
  const key = (each) => `${each.operator.uid}/${each.name}`;
  return html`<${Table} id="states" label="States" columns=${columns} rows=${rows} first="operator" rowKey=${key} selected=${open && key(open)} />`;
}

const python = (text) => JSON.stringify(text);

/** Python that opens the state as a DataFrame. */
export function snippetOf(path, uid, state) {
  return `import tidegate as tg

spark = tg.session("look")
snapshot = tg.Savepoint.open(${python(path)})
frame = snapshot.state(${python(uid)}, ${python(state)}).to_df(spark)
frame.show()`;
}

function Snippet({ data, row }) {
  const text = snippetOf(data.snapshot, row.operator.uid, row.name);
  return html`<${Panel} title="Open as a DataFrame" aside=${html`<${CopyButton} text=${text} label="Copy Python" />`}>
    <pre class="code" tabindex="0" aria-label="Python code">${text}</pre>
  <//>`;
}
