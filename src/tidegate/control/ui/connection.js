// Whether what the page shows is current, and how old it is if not.

import { useNow } from "./clock.js";
import { age } from "./format.js";
import { Shape } from "./parts/status.js";
import { Ago, Stamp } from "./parts/time.js";
import { html } from "./vendor/preact-htm.js";

export function ConnectionState({ seen }) {
  useNow();
  if (!seen.connected) return html`<span class="connection"><${Shape} tone="warn" />no connection · ${age(Date.now() - seen.receivedAt)} old</span>`;
  if (!seen.report.live) return html`<span class="connection"><${Shape} tone="none" />from storage</span>`;
  return html`<span class="connection"><${Shape} tone="ok" />live</span>`;
}

export function ConnectionNotice({ seen }) {
  useNow();
  const { report, live } = seen;
  if (!seen.connected) {
    const wait = seen.nextTryAt ? Math.max(0, seen.nextTryAt - Date.now()) : 0;
    return html`<div class="notice warn" role="status">
      <p><strong>No connection to the server.</strong> These are the values of ${age(Date.now() - seen.receivedAt)} ago. ${wait ? `Next try in ${age(wait + 999)}.` : "Trying now."}</p>
      <button type="button" class="button small" onClick=${() => live.tryNow()}>Try now</button>
    </div>`;
  }
  if (report.status === "LOST") {
    return html`<div class="notice bad" role="status">
      <p><strong>The driver is gone without having ended the job.</strong> This is what it stored <${Ago} at=${report.written_ms} />, at <${Stamp} at=${report.written_ms} full=${true} />. Start the job again and it continues from its latest checkpoint.</p>
    </div>`;
  }
  return null;
}
