// The page: a bar on top, the header of a job with its tabs, and one of the pages below.

import { Actions } from "./actions.js";
import { get } from "./api.js";
import { ConnectionNotice, ConnectionState } from "./connection.js";
import { plural } from "./format.js";
import { useLive } from "./live.js";
import { Checkpoints } from "./pages/checkpoints.js";
import { Configuration } from "./pages/configuration.js";
import { Exceptions } from "./pages/exceptions.js";
import { Jobs } from "./pages/jobs.js";
import { Output } from "./pages/output.js";
import { Overview } from "./pages/overview.js";
import { Savepoints } from "./pages/savepoints.js";
import { State } from "./pages/state.js";
import { Id } from "./parts/copy.js";
import { Empty, Failure } from "./parts/panel.js";
import { Status } from "./parts/status.js";
import { Ago } from "./parts/time.js";
import { go, href, parse, useRoute } from "./router.js";
import { ThemeToggle } from "./theme_toggle.js";
import { onRefused, takeTokenFromAddress } from "./token.js";
import { TokenPage } from "./token_page.js";
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "./vendor/preact-htm.js";

const PAGES = [
  ["overview", "Overview", Overview],
  ["checkpoints", "Checkpoints", Checkpoints],
  ["state", "State", State],
  ["output", "Output", Output],
  ["exceptions", "Exceptions", Exceptions],
  ["savepoints", "Savepoints", Savepoints],
  ["configuration", "Configuration", Configuration],
];

function App() {
  const route = useRoute();
  const [refused, setRefused] = useState(false);
  useEffect(() => onRefused(() => setRefused(true)), []);
  if (refused) return html`<${Bar} /><${TokenPage} done=${() => setRefused(false)} />`;
  if (route.job) return html`<${JobView} key=${route.job} route=${route} />`;
  return html`<${Bar} /><main><${Boundary} key=${route.page}>${route.page === "start" ? html`<${Start} />` : html`<${Jobs} />`}<//></main>`;
}

function Bar({ children }) {
  return html`<header class="bar">
    <a class="brand" href="#/jobs"><img src="icon.svg" alt="" width="20" height="20" />tidegate</a>
    <span class="grow"></span>${children}<${ThemeToggle} />
  </header>`;
}

/** The first page: the only job, or the list of all. */
function Start() {
  const [error, setError] = useState(null);
  const [tries, again] = useState(0);
  useEffect(() => {
    // A reader who opens another page meanwhile stays there. The address changes first, before this page is removed.
    const here = () => parse(location.hash).page === "start";
    get("jobs/overview").then(
      ({ jobs }) => here() && go(jobs.length === 1 ? href(jobs[0].jid) : "#/jobs", { replace: true }),
      (problem) => here() && setError(problem),
    );
  }, [tries]);
  return error && html`<${Failure} error=${error} retry=${() => again((n) => n + 1)} />`;
}

function JobView({ route }) {
  const seen = useLive(route.job);
  const report = seen?.report;
  useEffect(() => {
    document.title = report ? `${report.job} · tidegate` : "tidegate";
  }, [report?.job]);
  const [, , Page] = PAGES.find(([name]) => name === route.page) ?? PAGES[0];
  if (!report) return html`<${Bar} /><main>${seen?.error && html`<${NotFound} error=${seen.error} retry=${() => seen.live.tryNow()} />`}</main>`;
  const stale = !seen.connected || (report.status === "LOST" && Page === Overview); // State and checkpoints outlive the driver.
  return html`<${Bar}><${ConnectionState} seen=${seen} /><//>
    <${JobHeader} report=${report} page=${route.page} live=${seen.live} connected=${seen.connected} />
    <main class=${stale ? "stale" : ""}>
      <${ConnectionNotice} seen=${seen} />
      <${Boundary} key=${route.page}><${Page} report=${report} live=${seen.live} route=${route} /><//>
    </main>`;
}

function NotFound({ error, retry }) {
  if (error.status !== 404) return html`<${Failure} error=${error} retry=${retry} />`;
  return html`<${Empty} title="This server knows no such job.">${error.message} <a href="#/jobs">All jobs</a><//>`;
}

function JobHeader({ report, page, live, connected }) {
  const tabs = useRef(null);
  useEffect(() => {
    tabs.current.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [page]);
  return html`<section class="job-head" aria-label="Job">
    <div class="job-title">
      <h1>${report.job}</h1>
      <${Status} status=${report.status} ended=${report.end_text} />
      <span class="job-facts">
        <span>${report.status === "LOST" ? html`last report <${Ago} at=${report.written_ms} />` : html`${report.ended_ms ? "ended" : "started"} <${Ago} at=${report.ended_ms ?? report.started_ms} />`}</span>
        <span>${plural(report.restarts, "restart")}</span>
        <span>parallelism ${report.parallelism}</span>
        <${Id} text=${report.lineage} length=${8} />
      </span>
      <span class="grow"></span>
      <${Actions} report=${report} live=${live} connected=${connected} />
    </div>
    <nav ref=${tabs} class="tabs" aria-label="Pages of the job">
      ${PAGES.map(([name, title]) => html`<a key=${name} href=${href(report.lineage, name)} aria-current=${name === page ? "page" : null}>${title}<${Badge} report=${report} page=${name} /></a>`)}
    </nav>
  </section>`;
}

/** How many problems a page lists. */
function Badge({ report, page }) {
  const number = page === "exceptions" ? report.failures.length : page === "output" ? report.sinks.filter((each) => each.error).length : 0;
  return number ? html`<span class="badge">${number}</span>` : null;
}

/** An error while drawing shows on the page instead of a blank one. */
function Boundary({ children }) {
  const [error, reset] = useErrorBoundary((found) => console.error(found));
  return error ? html`<${Failure} error=${new Error(`This page cannot be drawn: ${error.message}`)} retry=${reset} />` : children;
}

takeTokenFromAddress();
render(html`<${App} />`, document.getElementById("app"));
