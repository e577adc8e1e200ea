// The last epochs: how long each phase took, and the rows per second.

import { phaseParts, sum } from "../figures.js";
import { absolute, clock, duration, rate, zoneNow } from "../format.js";
import { html, useMemo } from "../vendor/preact-htm.js";
import { bars, Chart } from "./chart.js";

const FEWEST_SLOTS = 30;
const FIRST = ["repeat", "plan", "source"];
const LAST = ["collect", "run", "rest of run", "other"];

function phaseNames(parts) {
  const found = [...new Set(parts.flatMap((each) => Object.keys(each)))];
  const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : LAST.includes(name) ? 50 + LAST.indexOf(name) : 10);
  return found.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true }));
}

/** Sums from the first phase to each, since bars are drawn over one another, the tallest first. */
function stacked(parts, names) {
  return names.map((_, until) => parts.map((each) => sum(names.slice(0, until + 1).map((name) => each[name] ?? 0))));
}

function rates(epochs) {
  return epochs.map((each, i) => {
    const ms = i ? each.ended_ms - epochs[i - 1].ended_ms : each.duration_ms;
    return each.rows_in / (Math.max(ms, 1) / 1000);
  });
}

const colourOfPhase = (index) => `phase-${(index % 6) + 1}`;

export function EpochCharts({ epochs }) {
  const { parts, names, x, stacks, speeds } = useMemo(() => {
    const parts = epochs.map(phaseParts);
    const names = phaseNames(parts);
    return { parts, names, x: epochs.map((_, i) => i), stacks: stacked(parts, names), speeds: rates(epochs) };
  }, [epochs]);
  const slots = Math.max(epochs.length, FEWEST_SLOTS);
  const xText = (i) => (epochs[i] ? clock(epochs[i].ended_ms) : "");
  const axes = { slots, xText, xTitle: `epoch ended at (${zoneNow()})` };
  const durations = useMemo(() => [x, ...stacks.toReversed()], [stacks]);
  const speed = useMemo(() => [x, speeds], [speeds]);
  const last = epochs.length - 1;
  const at = (index) => epochs[index ?? last] ?? epochs[last];
  const which = (index) => html`<time title=${absolute(at(index).ended_ms)}>epoch ${at(index).epoch}</time>`;
  const phases = (index) => names.map((name) => `${name} ${duration((parts[index ?? last] ?? parts[last])[name] ?? 0)}`).join(" · ");
  const repeated = (index) => (at(index).tries > 1 ? ` · ${at(index).tries} tries` : "");
  return html`<div class="charts">
    <${Chart}
      title="Epoch duration by phase"
      summary=${`The last of ${epochs.length} epochs took ${duration(at(null).duration_ms)}: ${phases(null)}.`}
      group="epochs"
      shape=${`${names.join()}/${slots}/${epochs[0].epoch}`}
      data=${durations}
      legend=${(at) => names.map((name, i) => [name, colourOfPhase(i), duration((parts[at ?? last] ?? parts[last])[name] ?? 0)])}
      describe=${(i) => html`${which(i)} · ${duration(at(i).duration_ms)}${repeated(i)}`}
      draw=${(colour) => ({
        ...axes,
        yTitle: "duration",
        yText: (value) => (value ? duration(value) : "0"),
        series: names.map((_, i) => ({ fill: colour(colourOfPhase(i)), width: 0, paths: bars(), points: { show: false } })).toReversed(),
      })}
    />
    <${Chart}
      title="Rows per second"
      summary=${`${rate(speeds.at(-1))} in the last epoch.`}
      group="epochs"
      shape=${`${slots}/${epochs[0].epoch}`}
      data=${speed}
      describe=${(i) => html`${which(i)} · ${rate(speeds[i ?? last] ?? speeds[last])}`}
      legend=${() => [["rows of all sources", "accent"]]}
      draw=${(colour) => ({
        ...axes,
        yTitle: "rows per second",
        yText: (value) => (value ? rate(value).replace("\u00a0rows/s", "/s") : "0"),
        series: [{ stroke: colour("accent"), fill: colour("accent-pale"), width: 1.5, points: { show: epochs.length < 3 } }],
      })}
    />
  </div>`;
}
