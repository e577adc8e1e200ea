// The server's clock, as far as this page knows it, and a tick every second for everything that shows an age.

import { useEffect, useState } from "./vendor/preact-htm.js";

let ahead = 0;
const watchers = new Set();

/** Learn the server's time from an answer that has just arrived. */
export function learn(serverNowMs) {
  if (serverNowMs) ahead = serverNowMs - Date.now();
}

export function now() {
  return Date.now() + ahead;
}

setInterval(() => {
  if (!document.hidden) for (const each of watchers) each();
}, 1000);

/** The current time; the component is drawn again every second. */
export function useNow() {
  const [, tick] = useState(0);
  useEffect(() => {
    const again = () => tick((n) => n + 1);
    watchers.add(again);
    return () => watchers.delete(again);
  }, []);
  return now();
}
