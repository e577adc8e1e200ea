// The graph of a job by levels: edges are SVG, nodes are buttons, coloured by what their tasks do with their time.

import { levelWork, operatorRates, operatorStateSize, sum, throughput } from "./figures.js";
import { bytes, count, duration, estimated, percent, plural, rate } from "./format.js";
import { layout } from "./graph_layout.js";
import { html, useEffect, useMemo, useState } from "./vendor/preact-htm.js";

const BUSY = [178, 34, 34];
const IDLE = [37, 93, 160];
const HELD = [22, 24, 28];
const HEAD = 28;
const WIDE = { along: 184, across: 96, gap: 96, chain: 32 };
const HALF = 160;
const NARROW = { along: 96, across: 264, gap: 56, chain: 24 };

/** Red, blue and black by their shares, as in Flink. */
export function workColour({ busy, idle, held }) {
  const total = busy + idle + held || 1;
  const mixed = [0, 1, 2].map((i) => Math.round((BUSY[i] * busy + IDLE[i] * idle + HELD[i] * held) / total));
  return `rgb(${mixed.join(",")})`;
}

function useNarrow() {
  const query = "(max-width: 720px)";
  const [narrow, set] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const changed = () => set(media.matches);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, []);
  return narrow;
}

export function Graph({ report, selected, select }) {
  const narrow = useNarrow();
  const { nodes, edges } = report.graph;
  const placed = useMemo(() => (narrow ? narrowLayout(nodes, edges) : layout(nodes, edges, WIDE)), [JSON.stringify(report.graph), narrow]);
  const top = narrow ? 0 : HEAD;
  const rates = operatorRates(report);
  const xy = narrow ? (p) => [p.across, p.along] : (p) => [p.along, p.across];
  const [width, height] = xy({ along: placed.along, across: placed.across });
  return html`<div class="graph-wrap" tabindex="0" role="region" aria-label="Graph of the job by levels">
    <div class="graph" style=${{ width: `${width}px`, height: `${height + top}px` }}>
      ${!narrow && placed.bands.map((band) => html`<div class="band" key=${band.level} style=${{ left: `${band.along - 8}px`, width: `${band.length + 16}px` }}>${bandTitle(band.level, report)}</div>`)}
      <svg class="edges" width=${width} height=${height} style=${{ top: `${top}px` }} aria-hidden="true">
        ${placed.edges.map((edge) => html`<path d=${curve(edge.points.map(xy), narrow)} /><path class="tip" d=${tip(xy(edge.points.at(-1)), narrow)} />`)}
      </svg>
      ${labels(placed.edges, xy, report, rates, narrow).map((each) => html`<div class="edge-label" style=${{ left: `${each.x}px`, top: `${each.y + top}px` }}>${each.lines.map((line) => html`<span>${line}</span>`)}</div>`)}
      ${nodes.map((node) => {
        const [x, y] = xy(placed.position.get(node.uid));
        return html`<${Node} key=${node.uid} node=${node} report=${report} rates=${rates[nameOf(node)]} x=${x} y=${y + top} size=${xy(placed.size)} chosen=${selected === node.uid} select=${select} />`;
      })}
    </div>
  </div>`;
}

/** Nodes next to each other share the width of a phone. */
function narrowLayout(nodes, edges) {
  const placed = layout(nodes, edges, NARROW);
  const rows = new Map();
  for (const node of nodes) {
    const { along } = placed.position.get(node.uid);
    rows.set(along, (rows.get(along) ?? 0) + 1);
  }
  return Math.max(...rows.values()) > 1 ? layout(nodes, edges, { ...NARROW, across: HALF }) : placed;
}

function bandTitle(level, report) {
  const tasks = report.tasks.filter((each) => each.level === level).length;
  const name = level === 0 ? "Source stage" : `Level ${level}`;
  return tasks ? `${name} · ${plural(tasks, "task")}` : name;
}

function Node({ node, report, rates, x, y, size, chosen, select }) {
  const work = node.level > 0 ? levelWork(report, node.level) : null;
  const text = work ? `${percent(work.busy)} busy${work.held >= 0.005 ? `, ${percent(work.held)} held` : ""}` : "";
  const [width, height] = size.map((each) => `${each}px`);
  return html`<button type="button" class=${`node ${work ? "measured" : ""}`} aria-pressed=${chosen} style=${{ left: `${x}px`, top: `${y}px`, width, height }} title=${node.label} onClick=${() => select(chosen ? null : node.uid)}>
    <span class="node-head" style=${work ? { background: workColour(work) } : {}}><span class="node-name">${node.uid}</span><span class="node-kind">${node.kind}</span></span>
    <span class="node-figures">${figures(node, report, rates).map((each) => html`<span>${each}</span>`)}</span>
    ${work && html`<span class="node-work">${text}</span><${WorkBar} work=${work} />`}
  </button>`;
}

/** What matters most about a node, in two lines at most. */
function figures(node, report, rates) {
  if (node.kind === "source") {
    const source = report.sources.find((each) => each.source === node.uid);
    const own = rates ? rate(rates.out) : onlySource(report, node) && report.epochs.length ? rate(throughput(report)) : null;
    const lag = known(source?.event_time_lag_ms) ? `${duration(source.event_time_lag_ms)} behind` : null;
    const pending = known(source?.pending_rows) ? `${count(source.pending_rows)} pending` : null;
    return [own, lag ?? pending].filter(Boolean);
  }
  const sink = report.sinks.find((each) => each.sink === node.uid);
  if (sink) {
    const waiting = sink.waiting_epochs ? `${plural(sink.waiting_epochs, "epoch")} waiting` : "nothing waits";
    return [rates ? rate(rates.in) : null, sink.error ? "fails" : waiting].filter(Boolean);
  }
  const own = operatorStateSize(report, node.uid);
  const ofLevel = node.states.length ? stateBytes(report, node) : null;
  const state = known(own) ? `${estimated(own)} state` : known(ofLevel) ? `${bytes(ofLevel)} state` : null;
  const flow = rates ? `${rate(rates.in).replace(/.rows.s$/, "")} → ${rate(rates.out)}` : null;
  return [flow, state].filter(Boolean);
}

/** The name under which tasks count the rows of a node. */
const nameOf = (node) => node.name ?? node.uid;

const known = (value) => value !== null && value !== undefined;

function onlySource(report, node) {
  return report.graph.nodes.filter((each) => each.kind === "source").every((each) => each.uid === node.uid);
}

/** The state of the node's tasks, which they share with the other operators of their level. */
export function stateBytes(report, node) {
  const sizes = report.tasks.filter((each) => each.level === node.level).map((each) => each.state_bytes);
  return sizes.some(known) ? sum(sizes.map((each) => each ?? 0)) : null;
}

export function WorkBar({ work }) {
  const parts = [["busy", work.busy], ["held", work.held], ["idle", work.idle]];
  const name = parts.map(([part, share]) => `${percent(share)} ${part}`).join(", ");
  return html`<span class="work" role="img" aria-label=${name} title=${name}>
    ${parts.map(([part, share]) => html`<span class=${part} style=${{ flexGrow: Math.max(share, 0) }}></span>`)}
  </span>`;
}

function curve(points, narrow) {
  let path = `M${points[0].join(" ")}`;
  for (let i = 1; i < points.length; i++) {
    const [[x, y], [u, v]] = [points[i - 1], points[i]];
    path += narrow ? ` C${x} ${(y + v) / 2} ${u} ${(y + v) / 2} ${u} ${v}` : ` C${(x + u) / 2} ${y} ${(x + u) / 2} ${v} ${u} ${v}`;
  }
  return path;
}

function tip([x, y], narrow) {
  return narrow ? `M${x - 4} ${y - 7}L${x} ${y}L${x + 4} ${y - 7}` : `M${x - 7} ${y - 4}L${x} ${y}L${x - 7} ${y + 4}`;
}

/** Two lines in the middle of each edge; those that would overlap move down. On a phone, one label for the edges of a node. */
function labels(edges, xy, report, rates, narrow) {
  const labelled = edges.filter((edge) => edge.exchange !== "chained" || edge.side_output);
  const shown = narrow ? labelled.filter((edge, i) => labelled.findIndex((each) => each.target === edge.target) === i) : labelled;
  const made = shown.map((edge) => {
    const [from, to] = edge.points.slice(-2);
    const [x, y] = xy(from);
    const [u, v] = xy(to);
    const how = edge.side_output ?? (edge.exchange === "keyed" ? `by ${edge.key}` : edge.exchange);
    return { x: (x + u) / 2, y: (y + v) / 2, lines: [how, edgeRate(edge, report, rates)].filter(Boolean) };
  });
  if (narrow) return made;
  made.sort((a, b) => a.x - b.x || a.y - b.y);
  for (let i = 1; i < made.length; i++) {
    const [before, each] = [made[i - 1], made[i]];
    if (Math.abs(before.x - each.x) < 96 && each.y - before.y < 36) each.y = before.y + 36;
  }
  return made;
}

function edgeRate(edge, report, rates) {
  const inputs = report.graph.edges.filter((each) => each.target === edge.target).length;
  const outputs = report.graph.edges.filter((each) => each.source === edge.source).length;
  const of = (uid) => rates[nameOf(report.graph.nodes.find((each) => each.uid === uid))];
  if (inputs === 1 && of(edge.target)) return rate(of(edge.target).in);
  if (outputs === 1 && of(edge.source)) return rate(of(edge.source).out);
  return null;
}
