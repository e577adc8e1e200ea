// Values of the state: those of one key, and the first entries of a state. Hidden unless the server allows them.

import { download, get, jobPath } from "../api.js";
import { CopyButton } from "../parts/copy.js";
import { useLoaded } from "../parts/load.js";
import { Empty, Failure, Panel, Redacted, RedactedReason } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { html, useState } from "../vendor/preact-htm.js";

const MOST_ENTRIES = 20;
const PARTS = [
  ["key", "Key"],
  ["namespace", "Window"],
  ["map_key", "Map key"],
  ["position", "Position"],
  ["value", "Value"],
];
const known = (value) => value !== null && value !== undefined;

export function jsonText(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

function Value({ value }) {
  return html`<code class="value">${jsonText(value)}</code>`;
}

export function KeyLookup({ report, data, uid, choose, snapshot }) {
  const [parts, setParts] = useState([""]);
  const [state, set] = useState({ busy: false, found: null, error: null });
  const operator = data.operators.find((each) => each.uid === uid);
  const lookUp = async (event) => {
    event.preventDefault();
    set({ busy: true, found: null, error: null });
    const query = new URLSearchParams(parts.map((each) => ["key", each]));
    if (snapshot) query.set("snapshot", snapshot);
    try {
      set({ busy: false, found: await get(`${jobPath(report.lineage, "state", uid, "lookup")}?${query}`), error: null });
    } catch (error) {
      set({ busy: false, found: null, error });
    }
  };
  const change = (index) => (event) => setParts(parts.map((each, i) => (i === index ? event.target.value : each)));
  const keyType = operator.key_type;
  return html`<${Panel} title="Look up a key">
    <form class="lookup" onSubmit=${lookUp}>
      <label class="inline-field">Operator<select value=${uid} onChange=${(event) => choose(event.target.value)}>${data.operators.map((each) => html`<option key=${each.uid} value=${each.uid}>${each.uid}</option>`)}</select></label>
      ${parts.map((each, i) => html`<label class="inline-field">${parts.length > 1 ? `Key column ${i + 1}` : "Key"}<input value=${each} onInput=${change(i)} placeholder=${keyType ?? ""} autocomplete="off" spellcheck="false" /></label>`)}
      <button type="button" class="button small" title="For a key of several columns" onClick=${() => setParts([...parts, ""])}>Add column</button>
      ${parts.length > 1 && html`<button type="button" class="button small" onClick=${() => setParts(parts.slice(0, -1))}>Remove column</button>`}
      <button type="submit" class="button primary" disabled=${state.busy}>${state.busy ? "Reading…" : "Look up"}</button>
    </form>
    ${state.error && html`<${Failure} error=${state.error} />`}
    ${state.found && html`<${Found} found=${state.found} uid=${uid} />`}
  <//>`;
}

function Found({ found, uid }) {
  const key = [found.key].flat().map(jsonText).join(", ");
  const rows = found.states;
  if (!rows.some((each) => each.found)) return html`<${Empty} title=${`Operator ${uid} holds nothing for key ${key}.`}>The key may never have occurred, or its state has expired or was cleared.<//>`;
  const columns = [
    { name: "name", title: "State", value: (each) => each.name },
    { name: "kind", title: "Kind", value: (each) => each.kind.replaceAll("_", " ") },
    { name: "value", title: `Value for ${key}`, value: (each) => jsonText(each.value), show: (each) => (!each.found ? html`<span class="muted">nothing stored</span>` : each.redacted ? html`<${Redacted} />` : html`<${Value} value=${each.value} />`), wide: true },
  ];
  return html`<${Table} id="found" label=${`State of key ${key}`} columns=${columns} rows=${rows} rowKey=${(each) => each.name} compact=${true} />
    ${rows.some((each) => each.redacted) && html`<${RedactedReason} />`}`;
}

export function Entries({ report, operator, state, snapshot, close }) {
  const query = new URLSearchParams({ limit: MOST_ENTRIES, ...(snapshot ? { snapshot } : {}) });
  const { data, error, reload } = useLoaded(`${jobPath(report.lineage, "state", operator.uid, state.name, "entries")}?${query}`);
  const title = `First entries of ${operator.uid}.${state.name}`;
  const aside = html`${data?.entries.length > 0 && !data.redacted && html`<${CopyButton} text=${JSON.stringify(data.entries, null, 2)} label="Copy as JSON" /><${Download} report=${report} operator=${operator} state=${state} snapshot=${snapshot} />`}<a class="button small" href=${close}>Close</a>`;
  const columns = PARTS.filter(([name]) => data?.entries.some((each) => known(each[name]))).map(([name, title]) => ({
    name,
    title,
    value: (each) => (known(each[name]) ? jsonText(each[name]) : null),
    show: (each) => (known(each[name]) ? html`<${Value} value=${each[name]} />` : "–"),
    wide: true,
  }));
  return html`<${Panel} id="entries" title=${title} aside=${aside}>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${!data && !error && html`<p class="hint">Reading…</p>`}
    ${data?.redacted && html`<p><${Redacted} /></p><${RedactedReason} />`}
    ${data && !data.redacted && (data.entries.length ? html`<${Table} id="entries" label=${title} columns=${columns} rows=${data.entries} compact=${true} />${data.more && html`<p class="hint">There are more entries than these ${data.entries.length}.</p>`}` : html`<${Empty} title="This state is empty." />`)}
  <//>`;
}

const FORMATS = [
  ["csv", "CSV"],
  ["jsonl", "JSON lines"],
  ["parquet", "Parquet"],
];

/** All entries as a file. */
function Download({ report, operator, state, snapshot }) {
  const [status, set] = useState({ busy: false, error: null });
  const act = (format) => async () => {
    const query = new URLSearchParams({ format, ...(snapshot ? { snapshot } : {}) });
    set({ busy: true, error: null });
    try {
      await download(`${jobPath(report.lineage, "state", operator.uid, state.name, "export")}?${query}`, `${operator.uid}-${state.name}.${format}`);
      set({ busy: false, error: null });
    } catch (error) {
      set({ busy: false, error });
    }
  };
  return html`<span class="buttons"><span role="status" class="muted">${status.error ? status.error.message : status.busy ? "Reading…" : "Download all:"}</span>
    ${FORMATS.map(([format, title]) => html`<button type="button" class="button small" disabled=${status.busy} onClick=${act(format)}>${title}</button>`)}
  </span>`;
}
