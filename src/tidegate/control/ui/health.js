// The five questions of someone on call, answered from a report. Pure: `nowMs` is given.
//
// An answer has a tone: "ok", "warn", "bad", or "none" where there is nothing to judge.

import { busiestTask, fallingBehind, largestLag, pendingRows, rowSkew, throughput } from "./figures.js";
import { count, duration, percent, plural, rate, times } from "./format.js";

const RECENT_MS = 600_000;
const BUSY = 0.5;
const SKEWED = 2;
const OVERDUE_INTERVALS = 3;
const GRACE_MS = 10_000;

export function answers(report, samples, nowMs) {
  return [
    { question: "Healthy?", ...healthy(report, nowMs) },
    { question: "Keeping up?", ...keepingUp(report, samples) },
    { question: "Last checkpoint", ...lastCheckpoint(report, nowMs) },
    { question: "Slowest task", ...slowestTask(report) },
    { question: "Last problem", ...lastProblem(report, nowMs) },
  ];
}

export function running(report) {
  return report.status === "RUNNING";
}

const ENDED = {
  FINISHED: { tone: "none", answer: "Finished" },
  CANCELED: { tone: "none", answer: "Canceled" },
  FAILED: { tone: "bad", answer: "Failed" },
};

function healthy(report, nowMs) {
  const last = report.failures[0];
  const ended = ENDED[report.status];
  if (ended) return { ...ended, detail: report.status === "FAILED" && last ? last.kind : "ended", at: report.ended_ms };
  if (report.status === "LOST") {
    return { tone: "bad", answer: "Driver gone", detail: "last report", at: report.written_ms };
  }
  if (report.status === "RESTARTING") return { tone: "bad", answer: "Restarting", detail: last?.kind, at: last?.at_ms };
  if (!running(report)) return { tone: "warn", answer: sentence(report.status), detail: "started", at: report.started_ms };
  const problem = problemOf(report, nowMs);
  if (problem) return problem;
  return { tone: "ok", answer: "Healthy", detail: "started", at: report.started_ms };
}

function problemOf(report, nowMs) {
  const sink = report.sinks.find((each) => each.error);
  if (sink) return { tone: "bad", answer: "Output fails", detail: `sink ${sink.sink}` };
  const checkpoint = lastCheckpoint(report, nowMs);
  if (checkpoint.tone === "bad") return { tone: "bad", answer: "Checkpoints fail", detail: checkpoint.detail };
  if (checkpoint.tone === "warn") return { tone: "warn", answer: "Checkpoint late", detail: checkpoint.detail };
  const last = report.failures[0];
  if (last && nowMs - last.at_ms < RECENT_MS) {
    return { tone: "warn", answer: "Restarted", detail: plural(report.restarts, "restart") + ", last", at: last.at_ms };
  }
  return null;
}

function keepingUp(report, samples) {
  if (!report.epochs.length) return { tone: "none", answer: running(report) ? "No epoch yet" : "No epoch" };
  const detail = [rate(throughput(report))];
  const lag = largestLag(report);
  const pending = pendingRows(report);
  if (lag !== null) detail.push(`${duration(lag)} behind`);
  if (pending !== null) detail.push(`${count(pending)} pending`);
  const facts = { detail: detail.join(" · ") };
  if (!running(report)) return { tone: "none", answer: "Not running", detail: `last ${facts.detail}` };
  if (report.held_by) return { tone: "bad", answer: `Held by ${report.held_by}`, ...facts };
  if (fallingBehind(samples)) return { tone: "warn", answer: "Falling behind", ...facts };
  return { tone: "ok", answer: "Yes", ...facts };
}

function lastCheckpoint(report, nowMs) {
  if (!report.checkpoints) return { tone: "none", answer: "Off", detail: "no checkpoint directory" };
  const { completed, failed } = report.checkpoints.latest;
  const tone = running(report);
  if (failed && (!completed || failed.trigger_timestamp > completed.trigger_timestamp)) {
    const detail = completed ? `#${failed.id} failed; last good #${completed.id}` : `#${failed.id} failed; none completed`;
    return { tone: "bad", answerAt: completed?.latest_ack_timestamp, answer: "None", detail };
  }
  if (!completed) return { tone: "none", answer: "None yet", detail: plural(report.checkpoints.counts.in_progress, "in progress", "in progress") };
  const facts = {
    answerAt: completed.latest_ack_timestamp,
    detail: `#${completed.id} took ${duration(completed.end_to_end_duration)}`,
  };
  const interval = report.checkpoint_config?.interval;
  const overdue = interval && nowMs - completed.latest_ack_timestamp > OVERDUE_INTERVALS * interval + GRACE_MS;
  if (tone && overdue) return { ...facts, tone: "warn", detail: `every ${duration(interval)} expected` };
  return { ...facts, tone: tone ? "ok" : "none" };
}

function slowestTask(report) {
  const task = busiestTask(report);
  if (!task) return { tone: "none", answer: "No task" };
  const skew = rowSkew(report, task);
  const detail = `${percent(task.busy)} busy${skew === null ? "" : ` · ${times(skew)} the mean rows`}`;
  return { tone: skew >= SKEWED && task.busy >= BUSY ? "warn" : "none", answer: task.task, detail };
}

/** A checkpoint that fails so soon after an exception fails because of it. */
const CONSEQUENCE_MS = 10_000;

function lastProblem(report, nowMs) {
  const failure = report.failures[0];
  const failed = report.checkpoints?.latest.failed;
  const failedAt = failed ? (failed.failure_timestamp ?? failed.trigger_timestamp) : null;
  if (failure && (!failedAt || failure.at_ms + CONSEQUENCE_MS >= failedAt)) {
    const after = failure.restarted ? "restarted" : "not restarted";
    return { tone: tone(failure.at_ms, nowMs, running(report)), answer: failure.kind, detail: `${after},`, at: failure.at_ms, page: "exceptions" };
  }
  if (failed) {
    return { tone: tone(failedAt, nowMs, report.checkpoints.latest.completed?.id > failed.id), answer: `Checkpoint #${failed.id}`, detail: "failed", at: failedAt, page: "checkpoints", item: failed.id };
  }
  return { tone: "none", answer: "None", detail: "since the first start" };
}

/** Bad until the job has recovered, and worth a look for a while after that. */
function tone(at, nowMs, recovered) {
  if (!recovered) return "bad";
  return nowMs - at < RECENT_MS ? "warn" : "none";
}

function sentence(status) {
  return status.charAt(0) + status.slice(1).toLowerCase();
}
