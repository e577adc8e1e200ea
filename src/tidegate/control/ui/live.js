// The report of one job, kept up to date by the server's events. When the server is gone, the last report stays.

import { events, get, jobPath } from "./api.js";
import { learn } from "./clock.js";
import { useEffect, useState } from "./vendor/preact-htm.js";

const SHORT_PAUSE_MS = 200;
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 15_000;
const POLL_MS = 5000;

export class LiveReport {
  constructor(job) {
    this.job = job;
    /** What pages see. `receivedAt` and `nextTryAt` are times of the browser's clock. */
    this.seen = { report: null, receivedAt: null, connected: false, error: null, nextTryAt: null };
    this.stopped = new AbortController();
    this.watchers = new Set();
    this.wake = () => {};
    this.asking = null;
    this.again = false;
  }

  watch(watcher) {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  start() {
    this.follow();
  }

  stop() {
    this.stopped.abort();
    this.wake();
  }

  /** Try at once instead of after the pause. */
  tryNow() {
    this.wake();
  }

  /** Fetch the report. Calls while one is on its way are answered by a single further one. */
  refresh() {
    if (this.asking) {
      this.again = true;
      return this.asking;
    }
    this.asking = this.fetchReport().finally(() => {
      this.asking = null;
      if (this.again && !this.stopped.signal.aborted) {
        this.again = false;
        this.refresh().catch(() => {});
      }
    });
    return this.asking;
  }

  async fetchReport() {
    const report = await get(jobPath(this.job, "report"), { signal: this.stopped.signal });
    learn(report.now_ms);
    this.show({ report, receivedAt: Date.now(), connected: true, error: null, nextTryAt: null });
  }

  async follow() {
    let pause = FIRST_PAUSE_MS;
    let failure = null;
    while (!this.stopped.signal.aborted) {
      try {
        await this.refresh();
        pause = FIRST_PAUSE_MS;
        await this.listen();
        await this.sleep(SHORT_PAUSE_MS);
        continue; // The server ends a stream after a while; the next refresh shows whether it is still there.
      } catch (error) {
        failure = error;
      }
      if (this.stopped.signal.aborted) return;
      this.show({ connected: false, error: failure, nextTryAt: Date.now() + pause });
      await this.sleep(pause);
      pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
    }
  }

  /**
   * Fetch a report for each event, and every few seconds without one: a job without rows has no events, and its figures change
   * all the same. A server without events, as over storage, is asked every few seconds.
   */
  async listen() {
    const idle = setInterval(() => {
      if (Date.now() - this.seen.receivedAt >= POLL_MS) this.refresh().catch(() => {});
    }, POLL_MS / 2);
    try {
      for await (const name of events(jobPath(this.job, "events"), this.stopped.signal)) {
        if (name === "changed") await this.refresh();
      }
    } catch (error) {
      if (error.status !== 404 && error.status !== 409) throw error;
      for (;;) {
        await this.sleep(POLL_MS);
        if (this.stopped.signal.aborted) return;
        await this.refresh();
      }
    } finally {
      clearInterval(idle);
    }
  }

  sleep(ms) {
    return new Promise((done) => {
      const timer = setTimeout(done, ms);
      this.wake = () => {
        clearTimeout(timer);
        done();
      };
    });
  }

  show(change) {
    this.seen = { ...this.seen, ...change };
    for (const each of this.watchers) each(this.seen);
  }
}

/** The report of a job while a component shows it. Returns what `LiveReport.seen` is, and the object itself. */
export function useLive(job) {
  const [live, setLive] = useState(null);
  const [seen, setSeen] = useState(null);
  useEffect(() => {
    const made = new LiveReport(job);
    setLive(made);
    setSeen(made.seen);
    const unwatch = made.watch(setSeen);
    made.start();
    return () => {
      unwatch();
      made.stop();
    };
  }, [job]);
  return live && live.job === job ? { ...seen, live } : null;
}
