// What went wrong, newest first, and what the job did about it.

import { plural } from "../format.js";
import { CopyButton } from "../parts/copy.js";
import { Empty, Panel } from "../parts/panel.js";
import { Shape } from "../parts/status.js";
import { Ago, Stamp } from "../parts/time.js";
import { html } from "../vendor/preact-htm.js";

const SHOWN_LINES = 4;

export function Exceptions({ report }) {
  const { failures } = report;
  return html`<h2 class="page-title">Exceptions</h2>
    ${failures.length === 0
      ? html`<${Panel} title="No failure"><${Empty} title="Nothing went wrong.">Failures of the job appear here, also after it has recovered from them.<//><//>`
      : html`<${Panel} title=${plural(failures.length, "failure")} aside=${html`<span>${plural(report.restarts, "restart")}</span>`}>
          <ol class="failures">${failures.map((each, i) => html`<${Failure} key=${`${each.at_ms}/${i}`} failure=${each} open=${i === 0} />`)}</ol>
        <//>`}`;
}

function Failure({ failure, open }) {
  const lines = failure.message.trimEnd().split("\n");
  return html`<li class=${failure.restarted ? "" : "final"}>
    <div class="failure-head">
      <${Shape} tone=${failure.restarted ? "warn" : "bad"} />
      <strong>${failure.kind}</strong>
      <span class="muted"><${Ago} at=${failure.at_ms} />, <${Stamp} at=${failure.at_ms} full=${true} /></span>
      <span class="grow"></span>
      <span>${failure.restarted ? "the job restarted" : "the job did not restart"}</span>
      <${CopyButton} text=${`${failure.kind}: ${failure.message}`} />
    </div>
    ${lines.length <= SHOWN_LINES
      ? html`<pre class="message">${failure.message}</pre>`
      : html`<details open=${open}><summary><span class="message-line">${lines[0]}</span> <span class="muted">${lines.length} lines</span></summary><pre class="message">${failure.message}</pre></details>`}
  </li>`;
}
