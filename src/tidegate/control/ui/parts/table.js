// A table that can be sorted by each of its columns.
//
// `compact`: no wider than its contents. `most`: how many rows are shown until all are asked for. A column: { name, title, value: row => what to sort by, show: row => what to see (default: the value), hint,
// right, wide or path: how it is set }.

import { html, useState } from "../vendor/preact-htm.js";

const chosen = new Map();

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === "string" && typeof b === "string") return a.localeCompare(b, "en", { numeric: true });
  return a < b ? -1 : 1;
}

/** Rows by a column. Unknown values come last in both directions. */
export function sorted(rows, column, descending) {
  const known = rows.filter((row) => column.value(row) !== null && column.value(row) !== undefined);
  const unknown = rows.filter((row) => !known.includes(row));
  known.sort((a, b) => compare(column.value(a), column.value(b)) * (descending ? -1 : 1));
  return [...known, ...unknown];
}

export function Table({ id, label, columns, rows, first, descending = false, rowKey, selected, onSelect, compact = false, most = Infinity }) {
  const [, redraw] = useState(0);
  const order = chosen.get(id) ?? { name: first ?? null, descending };
  const column = columns.find((each) => each.name === order.name);
  const [all, showAll] = useState(false);
  const ordered = column ? sorted(rows, column, order.descending) : rows;
  const shown = all ? ordered : ordered.slice(0, most);
  const sortBy = (name) => {
    const turned = order.name === name ? !order.descending : Boolean(columns.find((each) => each.name === name).right);
    chosen.set(id, { name, descending: turned });
    redraw((n) => n + 1);
  };
  return html`<div class="table-wrap" tabindex="0" role="region" aria-label=${`Table: ${label}`}>
    <table class=${compact ? "compact" : ""}>
      <thead>
        <tr>${columns.map((each) => html`<${Head} key=${each.name} column=${each} order=${order} sortBy=${sortBy} />`)}</tr>
      </thead>
      <tbody>
        ${shown.map((row, index) => {
          const key = rowKey ? rowKey(row) : index;
          const mark = selected !== undefined && selected !== null && key === selected;
          return html`<tr key=${key} class=${`${onSelect ? "choosable" : ""} ${mark ? "selected" : ""}`} onClick=${onSelect && (() => onSelect(row))}>
            ${columns.map((each) => html`<td key=${each.name} class=${each.right ? "right" : each.path ? "wide path" : each.wide ? "wide" : ""}>${(each.show ?? each.value)(row) ?? "–"}</td>`)}
          </tr>`;
        })}
      </tbody>
    </table>
    ${ordered.length > shown.length && html`<p class="hint"><button type="button" class="button small" onClick=${() => showAll(true)}>Show all ${ordered.length}</button></p>`}
  </div>`;
}

function Head({ column, order, sortBy }) {
  const active = order.name === column.name;
  const direction = active ? (order.descending ? "descending" : "ascending") : "none";
  const arrow = active ? (order.descending ? "▾" : "▴") : "";
  return html`<th scope="col" aria-sort=${direction} class=${column.right ? "right" : ""}>
    <button type="button" class="sort" title=${column.hint ?? `Sort by ${column.title}`} onClick=${() => sortBy(column.name)}>
      ${column.title}<span class="arrow" aria-hidden="true">${arrow}</span>
    </button>
  </th>`;
}
