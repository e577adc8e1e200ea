// Figures as text, with their units. Unknown values are an en dash.

export const UNKNOWN = "–";

const SPACE = "\u00a0";
const STEPS = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

export function known(value) {
  return value !== null && value !== undefined && !Number.isNaN(value);
}

/** Three significant digits: 1.23, 12.3, 123. */
function significant(value) {
  const size = Math.abs(value);
  const digits = size >= 100 || value === 0 ? 0 : size >= 10 ? 1 : 2;
  return value.toFixed(digits).replace(/\.0+$|(\.\d*?)0+$/, "$1");
}

function scaled(value, unit) {
  for (const [step, prefix] of STEPS) {
    if (Math.abs(value) >= step * 0.9995) return `${significant(value / step)}${SPACE}${prefix}${unit}`;
  }
  return `${significant(value)}${unit ? SPACE + unit : ""}`;
}

/** 1,234 up to a hundred thousand, then 1.23 M. */
export function count(value) {
  if (!known(value)) return UNKNOWN;
  return Math.abs(value) < 100_000 ? Math.round(value).toLocaleString("en-US") : scaled(value, "");
}

export function rate(perSecond, noun = "rows") {
  if (!known(perSecond)) return UNKNOWN;
  const text = Math.abs(perSecond) < 1000 ? significant(perSecond) : scaled(perSecond, "");
  return `${text}${SPACE}${noun}/s`;
}

export function bytes(value) {
  return known(value) ? scaled(value, "B") : UNKNOWN;
}

/** A size that is an estimate. */
export function estimated(value) {
  return known(value) ? `≈${SPACE}${bytes(value)}` : UNKNOWN;
}

export function percent(share) {
  if (!known(share)) return UNKNOWN;
  const text = share > 0 && share < 0.01 ? "<1" : Math.round(share * 100);
  return `${text}${SPACE}%`;
}

export function times(factor) {
  return known(factor) ? `${significant(factor)}×` : UNKNOWN;
}

/** $12.30, and three significant digits of small amounts: $0.00123. */
export function dollars(value) {
  if (!known(value)) return UNKNOWN;
  return value === 0 || value >= 0.1 ? `$${value.toFixed(2)}` : `$${Number(value.toPrecision(3)).toFixed(8).replace(/0+$/, "")}`;
}

const PARTS = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1000, "s"],
];

/** 40 µs, 7.66 ms, 812 ms, 1.24 s, 2 min 5 s, 3 h 12 min. */
export function duration(ms) {
  if (!known(ms)) return UNKNOWN;
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms > 0 && ms < 1) return `${Math.round(ms * 1000)}${SPACE}µs`;
  if (ms < 10 && !Number.isInteger(ms)) return `${ms.toFixed(2)}${SPACE}ms`;
  if (ms < 999.5) return `${Math.round(ms)}${SPACE}ms`;
  if (ms < 59_950) return `${significant(ms / 1000)}${SPACE}s`;
  return spans(ms);
}

/** Whole seconds, as for an age: 12 s, 2 min 5 s. */
export function age(ms) {
  if (!known(ms)) return UNKNOWN;
  return ms < 60_000 ? `${Math.max(0, Math.floor(ms / 1000))}${SPACE}s` : spans(ms);
}

function spans(ms) {
  const first = PARTS.findIndex(([size]) => ms >= size);
  const [size, unit] = PARTS[first];
  const next = PARTS[first + 1];
  const whole = Math.floor(ms / size);
  const rest = next ? Math.floor((ms % size) / next[0]) : 0;
  return `${whole}${SPACE}${unit}${rest ? `${SPACE}${rest}${SPACE}${next[1]}` : ""}`;
}

const two = (number) => String(number).padStart(2, "0");

function zone(date) {
  const minutes = -date.getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

/** 14:02:11, for axes and dense tables; the zone is in the title of the axis or on hover. */
export function clock(ms) {
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** 2026-11-16 14:02:11 UTC+01:00 */
export function absolute(ms) {
  const date = new Date(ms);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(ms)} ${zone(date)}`;
}

export function zoneNow() {
  return zone(new Date());
}

/** The beginning of a long id, or its end. */
export function short(id, length = 8, end = false) {
  if (!id || id.length <= length + 1) return id ?? UNKNOWN;
  return end ? `…${id.slice(-length)}` : `${id.slice(0, length)}…`;
}

/** "1 job", "2 jobs". */
export function plural(number, noun, more = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : more}`;
}

/** What a checkpoint or savepoint is, in small letters. */
export function kindOf(each) {
  if (!each.is_savepoint) return each.checkpoint_type?.toLowerCase().replaceAll("_", " ") ?? "checkpoint";
  return each.savepointFormat ? `savepoint, ${each.savepointFormat.toLowerCase()}` : "savepoint";
}
