// One uPlot chart in a component: follows the width, the theme and new data, and says what is under the cursor.
//
// `draw(colour)` returns { series, yTitle, yText, xTitle, xText, slots, hooks? }; `colour(name)` reads a variable of the
// stylesheet. `data` is uPlot's: x first. Charts of the same `group` share their cursor. `describe` and `legend` are asked with
// the index under the cursor, or null.

import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";

const { uPlot } = globalThis; // A classic script, see index.html: its module is three times as large.

const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function optionsOf(drawn, { width, height, group, setIndex, pick }) {
  const axis = { stroke: colourOf("muted"), font: FONT, labelFont: FONT, labelSize: 16, ticks: { show: false } };
  const grid = { stroke: colourOf("line"), width: 1 };
  return {
    width,
    height,
    padding: [8, 24, 0, 0],
    legend: { show: false },
    scales: { x: { time: false, range: () => [-0.5, drawn.slots - 0.5] }, y: { range: (u, min, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [
      { ...axis, grid: { show: false }, size: 24, space: 72, incrs: [1, 2, 5, 10, 20], label: drawn.xTitle, values: (u, splits) => splits.map((i) => drawn.xText(i)) },
      { ...axis, grid, size: 56, space: 32, label: drawn.yTitle, values: (u, splits) => splits.map((v) => drawn.yText(v)) },
    ],
    series: [{}, ...drawn.series],
    cursor: { sync: { key: group }, drag: { x: false, y: false }, y: false, points: { show: false } },
    hooks: {
      ...drawn.hooks,
      setCursor: [(u) => setIndex(u.cursor.idx ?? null)],
      ready: [(u) => pick && u.over.addEventListener("click", () => known(u.cursor.idx) && pick(u.cursor.idx))],
    },
  };
}

const known = (index) => index !== null && index !== undefined;

/** The theme, as a value that changes when it does. */
function useTheme() {
  const root = document.documentElement;
  const [theme, set] = useState(root.dataset.theme);
  useEffect(() => {
    const observer = new MutationObserver(() => set(root.dataset.theme));
    observer.observe(root, { attributeFilter: ["data-theme"] });
    return () => observer.disconnect();
  }, []);
  return theme;
}

export function Chart({ title, summary, legend, draw, shape, data, group, height = 176, describe, pick }) {
  const place = useRef(null);
  const plot = useRef(null);
  const latest = useRef(null);
  latest.current = { draw, data, pick };
  const [index, setIndex] = useState(null);
  const theme = useTheme();
  useEffect(() => {
    const width = place.current.clientWidth;
    const drawn = latest.current.draw(colourOf);
    const options = optionsOf(drawn, { width, height, group, setIndex, pick: pick && ((i) => latest.current.pick(i)) });
    plot.current = new uPlot(options, latest.current.data, place.current);
    const observer = new ResizeObserver(() => {
      const now = place.current?.clientWidth;
      if (now && plot.current && now !== plot.current.width) plot.current.setSize({ width: now, height });
    });
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [theme, shape, height]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);
  return html`<figure class="chart">
    <figcaption><span class="chart-title">${title}</span><span class="readout">${describe(index)}</span></figcaption>
    <div ref=${place} class=${pick ? "plot pickable" : "plot"} role="img" aria-label=${`${title}. ${summary}`}></div>
    <ul class="legend">${legend(index).map(([name, variable, value]) => html`<li><${Swatch} variable=${variable} />${name}${value && html` <b>${value}</b>`}</li>`)}</ul>
  </figure>`;
}

export function Swatch({ variable }) {
  return html`<span class="swatch" style=${{ background: `var(--${variable})` }}></span>`;
}

/** Bars that leave a small gap; in `slots` of equal width. */
export function bars() {
  return uPlot.paths.bars({ size: [0.82, 28], align: 0 });
}
