// The last 60 checkpoints: durations and sizes. A failed one is marked with a cross.

import { absolute, bytes, clock, duration, zoneNow } from "../format.js";
import { html, useMemo } from "../vendor/preact-htm.js";
import { bars, Chart } from "./chart.js";

const SLOTS = 60;
const FEWEST_SLOTS = 30;

/** The newest ones, oldest first. */
export function strip(history) {
  return [...history].sort((a, b) => a.id - b.id).slice(-SLOTS);
}

function crosses(list, colour) {
  return (u) => {
    u.ctx.save();
    u.ctx.strokeStyle = colour;
    u.ctx.lineWidth = 1.5 * devicePixelRatio;
    const size = 3.5 * devicePixelRatio;
    list.forEach((each, i) => {
      if (each.status !== "FAILED") return;
      const x = u.valToPos(i, "x", true);
      const y = u.valToPos(each.end_to_end_duration, "y", true) - 2 * size;
      u.ctx.beginPath();
      u.ctx.moveTo(x - size, y - size);
      u.ctx.lineTo(x + size, y + size);
      u.ctx.moveTo(x + size, y - size);
      u.ctx.lineTo(x - size, y + size);
      u.ctx.stroke();
    });
    u.ctx.restore();
  };
}

export function CheckpointCharts({ history, pick }) {
  const list = useMemo(() => strip(history), [history]);
  const slots = Math.max(list.length, FEWEST_SLOTS);
  const x = list.map((_, i) => i);
  const of = (status, figure) => list.map((each) => (each.status === status ? figure(each) : null));
  const took = (each) => each.end_to_end_duration;
  const durations = useMemo(() => [x, of("COMPLETED", took), of("IN_PROGRESS", took), of("FAILED", took)], [list]);
  const sizes = useMemo(() => [x, list.map((each) => each.state_size), list.map((each) => each.checkpointed_size)], [list]);
  const last = list.length - 1;
  const at = (index) => list[index ?? last] ?? list[last];
  const which = (index) => html`<time title=${absolute(at(index).trigger_timestamp)}>#${at(index).id}</time> ${at(index).status.toLowerCase().replace("_", " ")}`;
  const axes = { slots, xText: (i) => (list[i] ? clock(list[i].trigger_timestamp) : ""), xTitle: `checkpoint triggered at (${zoneNow()})` };
  const bar = (fill) => ({ fill, width: 0, paths: bars(), points: { show: false } });
  const shape = `${slots}/${list[0].id}/${list.map((each) => each.status[0]).join("")}`;
  const failed = list.filter((each) => each.status === "FAILED").length;
  const common = { group: "checkpoints", shape, pick: (i) => pick(list[i].id) };
  return html`<div class="charts">
    <${Chart}
      ...${common}
      title="End-to-end duration"
      summary=${`${list.length} checkpoints, ${failed} failed. The last took ${duration(took(at(null)))}.`}
      data=${durations}
      legend=${() => [["completed", "accent"], ["in progress", "phase-2"], ["failed ×", "bad"]]}
      describe=${(i) => html`${which(i)} · ${duration(took(at(i)))}`}
      draw=${(colour) => ({
        ...axes,
        yTitle: "duration",
        yText: (value) => (value ? duration(value) : "0"),
        series: [bar(colour("accent")), bar(colour("phase-2")), bar(colour("bad"))],
        hooks: { draw: [crosses(list, colour("bad-mark"))] },
      })}
    />
    <${Chart}
      ...${common}
      title="Size"
      summary=${`The last uploaded ${bytes(at(null).checkpointed_size)} of ${bytes(at(null).state_size)}.`}
      data=${sizes}
      legend=${() => [["new files", "accent"], ["full size", "phase-2"]]}
      describe=${(i) => html`${which(i)} · ${bytes(at(i).checkpointed_size)} new of ${bytes(at(i).state_size)}`}
      draw=${(colour) => ({ ...axes, yTitle: "size", yText: (value) => (value ? bytes(value) : "0"), series: [bar(colour("phase-2")), bar(colour("accent"))] })}
    />
  </div>`;
}
