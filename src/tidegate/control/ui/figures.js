// Figures that pages derive from a report. Pure.

const RECENT_EPOCHS = 10;

/** The time that the last epochs cover, pauses between them included, in seconds; null without epochs. */
function coveredSeconds(epochs) {
  if (!epochs.length) return null;
  const first = epochs[0];
  const ms = epochs.at(-1).ended_ms - (first.ended_ms - first.duration_ms);
  return Math.max(ms, 1) / 1000;
}

export function recent(report) {
  return report.epochs.slice(-RECENT_EPOCHS);
}

/** Rows of the sources per second over the last epochs. */
export function throughput(report) {
  const epochs = recent(report);
  const seconds = coveredSeconds(epochs);
  return seconds === null ? null : sum(epochs.map((each) => each.rows_in)) / seconds;
}

/** Rows in and out per second over the last epochs, by the name under which tasks count them. */
export function operatorRates(report) {
  const epochs = recent(report);
  const seconds = coveredSeconds(epochs);
  const rates = {};
  if (seconds === null) return rates;
  for (const { operators } of epochs) {
    for (const [uid, [rowsIn, rowsOut]] of Object.entries(operators ?? {})) {
      rates[uid] ??= { in: 0, out: 0 };
      rates[uid].in += rowsIn / seconds;
      rates[uid].out += rowsOut / seconds;
    }
  }
  return rates;
}

export function largestLag(report) {
  return largest(report.sources.map((each) => each.event_time_lag_ms));
}

export function pendingRows(report) {
  const found = report.sources.map((each) => each.pending_rows).filter((each) => each !== null);
  return found.length ? sum(found) : null;
}

/** Mean shares of the tasks of a level; null if it has none. */
export function levelWork(report, level) {
  const tasks = report.tasks.filter((each) => each.level === level);
  if (!tasks.length) return null;
  const mean = (name) => sum(tasks.map((each) => each[name] ?? 0)) / tasks.length;
  return { tasks, busy: mean("busy"), idle: mean("idle"), held: mean("held") };
}

/** The task with the largest busy share; of several, the one with most rows, compared with its level. */
export function busiestTask(report) {
  const more = (a, b) => (a.busy === b.busy ? rowSkew(report, a) > rowSkew(report, b) : a.busy > b.busy);
  let found = null;
  for (const each of report.tasks) if (!found || more(each, found)) found = each;
  return found;
}

/** How many times the mean of its level a task read. */
export function rowSkew(report, task) {
  const { tasks } = levelWork(report, task.level);
  const mean = sum(tasks.map((each) => each.rows_in ?? 0)) / tasks.length;
  return mean > 0 ? (task.rows_in ?? 0) / mean : null;
}

const TREND = 6;

/** Whether rows wait longer and longer in the sources: each of the last samples is above the one before. */
export function fallingBehind(samples) {
  return grows(samples.map((each) => each.pending)) || grows(samples.map((each) => each.lag));
}

function grows(values) {
  const last = values.slice(-TREND);
  return last.length === TREND && last.every((each, i) => each !== null && (i === 0 || each > last[i - 1]));
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
