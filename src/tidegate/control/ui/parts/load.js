// Data that a page fetches besides the report. The last answer stays while a new one is on its way.

import { get } from "../api.js";
import { useCallback, useEffect, useState } from "../vendor/preact-htm.js";

/** `path` null: nothing is fetched. `version`: a change of it fetches again. */
export function useLoaded(path, version = 0) {
  const [state, set] = useState({ path: null, data: null, error: null });
  const [tries, again] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    const stopped = new AbortController();
    get(path, { signal: stopped.signal })
      .then((data) => set({ path, data, error: null }))
      .catch((error) => {
        if (error.name !== "AbortError") set((before) => ({ path, data: before.path === path ? before.data : null, error }));
      });
    return () => stopped.abort();
  }, [path, version, tries]);
  const reload = useCallback(() => again((n) => n + 1), []);
  const current = state.path === path ? state : { data: null, error: null };
  return { data: current.data, error: current.error, reload };
}
