// All jobs of the server: one for a driver, many for a directory of checkpoints.

import { get, jobPath } from "../api.js";
import { learn } from "../clock.js";
import { largestLag, throughput } from "../figures.js";
import { duration, plural, rate } from "../format.js";
import { Id } from "../parts/copy.js";
import { Empty, Failure, Panel } from "../parts/panel.js";
import { Status } from "../parts/status.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";
import { href } from "../router.js";
import { html, useEffect, useState } from "../vendor/preact-htm.js";

const EVERY_MS = 5000;
const AT_ONCE = 4;

/** Fetch the list every few seconds, and the reports of its jobs a few at a time. The last answers stay. */
function useJobs() {
  const [seen, set] = useState({ jobs: null, reports: {}, error: null });
  const [tries, again] = useState(0);
  useEffect(() => {
    const stopped = new AbortController();
    const { signal } = stopped;
    let timer;
    const round = async () => {
      try {
        const { jobs } = await get("jobs/overview", { signal });
        set((before) => ({ ...before, jobs, error: null }));
        const waiting = [...jobs];
        const worker = async () => {
          for (let job = waiting.shift(); job; job = waiting.shift()) {
            const { jid } = job;
            const report = await get(jobPath(jid, "report"), { signal }).catch(() => null);
            if (signal.aborted) return;
            if (report) learn(report.now_ms);
            if (report) set((before) => ({ ...before, reports: { ...before.reports, [jid]: report } }));
          }
        };
        await Promise.all(Array.from({ length: AT_ONCE }, worker));
      } catch (error) {
        if (!signal.aborted) set((before) => ({ ...before, error }));
      }
      if (!signal.aborted) timer = setTimeout(round, EVERY_MS);
    };
    round();
    return () => {
      stopped.abort();
      clearTimeout(timer);
    };
  }, [tries]);
  return { ...seen, retry: () => again((n) => n + 1) };
}

const column = (name, title, value, more = {}) => ({ name, title, value, ...more });

function columns(reports) {
  const of = (figure) => (job) => (reports[job.jid] ? figure(reports[job.jid]) : null);
  const status = (job) => reports[job.jid]?.status ?? job.state;
  const live = (figure) => of((report) => (report.status === "RUNNING" ? figure(report) : null));
  const checkpoint = of((report) => report.checkpoints?.latest.completed?.latest_ack_timestamp ?? null);
  return [
    column("name", "Job", (job) => job.name, { show: (job) => html`<a href=${href(job.jid)}>${job.name}</a>`, wide: true }),
    column("status", "Status", status, { show: (job) => html`<${Status} status=${status(job)} ended=${reports[job.jid]?.end_text} />` }),
    column("uptime", "Runtime", (job) => job.duration, { show: (job) => duration(job.duration), right: true, hint: "From its start until now, or until its end" }),
    column("restarts", "Restarts", of((report) => report.restarts), { right: true }),
    column("checkpoint", "Last checkpoint", checkpoint, { show: (job) => html`<${Ago} at=${checkpoint(job)} />`, right: true }),
    column("rows", "Throughput", live(throughput), { show: (job) => rate(live(throughput)(job)), right: true }),
    column("lag", "Lag", live(largestLag), { show: (job) => duration(live(largestLag)(job)), right: true, hint: "The largest event time lag of its sources" }),
    column("id", "Id", (job) => job.jid, { show: (job) => html`<${Id} text=${job.jid} length=${8} />` }),
  ];
}

export function Jobs() {
  const { jobs, reports, error, retry } = useJobs();
  const [wanted, want] = useState("");
  useEffect(() => {
    document.title = "Jobs · tidegate";
  }, []);
  if (!jobs) return error && html`<h1 class="page-title">Jobs</h1><${Failure} error=${error} retry=${retry} />`;
  const text = wanted.toLowerCase();
  const status = (job) => (reports[job.jid]?.end_text ?? reports[job.jid]?.status ?? job.state).toLowerCase();
  const found = jobs.filter((job) => job.name.toLowerCase().includes(text) || job.jid.startsWith(text) || status(job).includes(text));
  return html`<h1 class="page-title">Jobs</h1>
    ${error && html`<${Failure} error=${error} retry=${retry} />`}
    <${Panel} title=${plural(jobs.length, "job")} aside=${jobs.length > 1 && html`<input type="search" class="filter" placeholder="Name, id or status" aria-label="Filter jobs by name, id or status" value=${wanted} onInput=${(event) => want(event.target.value)} />`}>
      ${jobs.length === 0 && html`<${Empty} title="There is no job here yet.">A job appears after its first checkpoint. Check that the directory is the one in <code>tg.Checkpointing(dir=…)</code>.<//>`}
      ${jobs.length > 0 && found.length === 0 && html`<${Empty} title=${`No job matches “${wanted}”.`} />`}
      ${found.length > 0 && html`<${Table} id="jobs" label="Jobs" columns=${columns(reports)} rows=${found} first="name" rowKey=${(job) => job.jid} />`}
    <//>`;
}
