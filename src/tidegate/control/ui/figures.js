// Figures that pages derive from a report. Pure.

/** Rows of the sources per second, as the server sees them now. */
export function throughput(report) {
  return report.epochs.length ? report.rates.rows_in : null;
}

/** Rows in and out per second, by the name under which tasks count them. */
export function operatorRates(report) {
  return Object.fromEntries(Object.entries(report.rates.operators).map(([uid, [rowsIn, rowsOut]]) => [uid, { in: rowsIn, out: rowsOut }]));
}

export function largestLag(report) {
  return largest(report.sources.map((each) => each.event_time_lag_ms));
}

/** Mean shares of the tasks of a level; null if it has none. */
export function levelWork(report, level) {
  const tasks = report.tasks.filter((each) => each.level === level);
  if (!tasks.length) return null;
  const mean = (name) => sum(tasks.map((each) => each[name] ?? 0)) / tasks.length;
  return { tasks, busy: mean("busy"), idle: mean("idle"), held: mean("held") };
}

/** How many times the mean of its level a task read. */
export function rowSkew(report, task) {
  const { tasks } = levelWork(report, task.level);
  const mean = sum(tasks.map((each) => each.rows_in ?? 0)) / tasks.length;
  return mean > 0 ? (task.rows_in ?? 0) / mean : null;
}

/** Estimated bytes of a state; null if it is unknown. */
export function stateSize(report, operator, state) {
  return (report.states ?? []).find((each) => each.operator === operator && each.state === state)?.bytes ?? null;
}

/** Estimated bytes of all states of an operator; null if they are unknown. */
export function operatorStateSize(report, operator) {
  const found = (report.states ?? []).filter((each) => each.operator === operator);
  return found.length ? sum(found.map((each) => each.bytes)) : null;
}

const OF_RUN = /^(source|collect|level .*)$/;
const BETWEEN = "streaming"; // What Structured Streaming does between two epochs belongs to neither.

/** The phases of an epoch as parts that add up to its duration: source stage, levels and collecting are parts of "run". */
export function phaseParts(epoch) {
  const parts = {};
  const ofRun = Object.entries(epoch.phases).filter(([name]) => OF_RUN.test(name));
  const known = sum(ofRun.map(([, ms]) => ms));
  for (const [name, ms] of Object.entries(epoch.phases)) {
    if (ms > 0 && !OF_RUN.test(name) && name !== "run" && name !== BETWEEN) parts[name] = ms;
  }
  const run = epoch.phases.run ?? known;
  const scale = known > run ? run / known : 1;
  for (const [name, ms] of ofRun) parts[name] = ms * scale;
  if (run > known * scale) parts[ofRun.length ? "rest of run" : "run"] = run - known * scale;
  const other = epoch.duration_ms - sum(Object.values(parts));
  if (other > 0) parts.other = other;
  return parts;
}

export function sum(numbers) {
  return numbers.reduce((a, b) => a + b, 0);
}

function largest(values) {
  const found = values.filter((each) => each !== null && each !== undefined);
  return found.length ? Math.max(...found) : null;
}
