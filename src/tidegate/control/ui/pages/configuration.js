// The options that are in effect and where each comes from; versions and the host.

import { plural } from "../format.js";
import { CopyButton, Id } from "../parts/copy.js";
import { Empty, Facts, Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Stamp } from "../parts/time.js";
import { html, useState } from "../vendor/preact-htm.js";

const COLUMNS = [
  { name: "key", title: "Option", value: (each) => each.key, show: (each) => html`<code>${each.key}</code>`, wide: true },
  { name: "value", title: "Value", value: (each) => each.value, show: (each) => html`<code class="value">${each.value}</code>`, wide: true },
  { name: "origin", title: "Origin", value: (each) => each.origin, show: (each) => html`<span class=${each.origin === "default" ? "muted" : "chip"}>${each.origin}</span>` },
];

export function Configuration({ report }) {
  const [wanted, want] = useState("");
  const [all, showAll] = useState(true);
  const text = wanted.toLowerCase();
  const found = report.options.filter((each) => (all || each.origin !== "default") && `${each.key} ${each.value}`.toLowerCase().includes(text));
  const set = report.options.filter((each) => each.origin !== "default").length;
  return html`<h2 class="page-title">Configuration</h2>
    <${Panel} title="Job">
      <${Facts} pairs=${[
        ["Job", report.job],
        ["Id", html`<${Id} text=${report.lineage} length=${16} />`],
        ["Term", report.term],
        ["Started", html`<${Stamp} at=${report.started_ms} full=${true} />`],
        ["Host", report.host],
        ["Parallelism", `${report.parallelism} of at most ${report.max_parallelism}`],
        ["State backend", report.state_backend],
        ["Versions", Object.entries(report.versions).map(([name, version]) => `${name} ${version}`).join(", ")],
      ]} />
    <//>
    <${Panel} title=${`${plural(report.options.length, "option")}, ${set} set`} aside=${html`
      <label class="check"><input type="checkbox" checked=${!all} onChange=${(event) => showAll(!event.target.checked)} /> only those set</label>
      <input type="search" class="filter" placeholder="Option or value" aria-label="Filter options" value=${wanted} onInput=${(event) => want(event.target.value)} />
      <${CopyButton} text=${found.map((each) => `${each.key}: ${each.value}`).join("\n")} label="Copy as YAML" />`}>
      ${found.length ? html`<${Table} id="options" label="Options" columns=${COLUMNS} rows=${found} first="key" rowKey=${(each) => each.key} />` : html`<${Empty} title=${report.options.length ? "No option matches." : "This job has stored no options."} />`}
    <//>`;
}
