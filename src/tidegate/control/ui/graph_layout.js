// Where the nodes of a job's graph are drawn. Pure.
//
// Each level takes one column for each step of a chain within it; an edge that skips columns gets a free row in each.

const CROSS_GAP = 24;

/** Longest chain of edges within its level that leads to each node. */
function depths(nodes, edges) {
  const level = new Map(nodes.map((each) => [each.uid, each.level]));
  const depth = new Map(nodes.map((each) => [each.uid, 0]));
  for (let round = 0; round < nodes.length; round++) {
    let changed = false;
    for (const { source, target } of edges) {
      if (level.get(source) !== level.get(target) || depth.get(target) > depth.get(source)) continue;
      depth.set(target, depth.get(source) + 1);
      changed = true;
    }
    if (!changed) break;
  }
  return depth;
}

/** The column of each node, where each column begins, and the columns of each level. Chains are drawn closer together. */
function columns(nodes, edges, size) {
  const depth = depths(nodes, edges);
  const levels = [...new Set(nodes.map((each) => each.level))].sort((a, b) => a - b);
  const bands = [];
  const starts = [];
  let along = 0;
  for (const level of levels) {
    const width = 1 + Math.max(...nodes.filter((each) => each.level === level).map((each) => depth.get(each.uid)));
    const length = width * size.along + (width - 1) * size.chain;
    bands.push({ level, first: starts.length, along, length });
    for (let i = 0; i < width; i++) starts.push(along + i * (size.along + size.chain));
    along += length + size.gap;
  }
  const first = new Map(bands.map((each) => [each.level, each.first]));
  const column = new Map(nodes.map((each) => [each.uid, first.get(each.level) + depth.get(each.uid)]));
  return { column, starts, bands, length: along - size.gap };
}

/** Place nodes along and across the direction of the rows. `size`: { along, across } of a node and { gap, chain } between them, in pixels. */
export function layout(nodes, edges, size) {
  const drawable = edges.filter((each) => nodes.some((n) => n.uid === each.source) && nodes.some((n) => n.uid === each.target));
  const { column, starts, bands, length } = columns(nodes, drawable, size);
  const cells = starts.map(() => []);
  for (const node of nodes) cells[column.get(node.uid)].push({ id: node.uid, across: size.across, before: [] });
  const stops = drawable.map((edge, i) => route(edge, i, column, cells));
  arrange(cells);
  const tall = Math.max(...cells.map(heightOf));
  const position = new Map();
  cells.forEach((cell, index) => {
    let across = (tall - heightOf(cell)) / 2;
    for (const each of cell) {
      position.set(each.id, { along: starts[index], across, middle: across + each.across / 2 });
      across += each.across + CROSS_GAP;
    }
  });
  return {
    position,
    edges: drawable.map((edge, i) => ({ ...edge, points: points(stops[i], position, size) })),
    bands,
    size,
    along: length,
    across: tall,
  };
}

function heightOf(cell) {
  return cell.reduce((total, each) => total + each.across, 0) + CROSS_GAP * Math.max(0, cell.length - 1);
}

/** The ids that an edge passes, with a free row in each column between its ends. */
function route(edge, index, column, cells) {
  const ids = [edge.source];
  for (let at = column.get(edge.source) + 1; at < column.get(edge.target); at++) {
    const id = `\u0000${index}/${at}`;
    cells[at].push({ id, across: 8, before: [ids.at(-1)] });
    ids.push(id);
  }
  const target = cells[column.get(edge.target)].find((each) => each.id === edge.target);
  target.before.push(ids.at(-1));
  return [...ids, edge.target];
}

/** Order each column by the mean row of what leads to its cells. */
function arrange(cells) {
  for (let at = 1; at < cells.length; at++) {
    const row = new Map(cells.slice(0, at).flatMap((cell) => cell.map((each, i) => [each.id, i])));
    const mean = (each) => {
      const rows = each.before.map((id) => row.get(id)).filter((found) => found !== undefined);
      return rows.length ? rows.reduce((a, b) => a + b) / rows.length : 0;
    };
    cells[at].sort((a, b) => mean(a) - mean(b));
  }
}

function points(ids, position, size) {
  return ids.flatMap((id, i) => {
    const { along, middle } = position.get(id);
    const begin = { along, across: middle };
    const end = { along: along + size.along, across: middle };
    if (i === 0) return [end];
    return i === ids.length - 1 ? [begin] : [begin, end];
  });
}
