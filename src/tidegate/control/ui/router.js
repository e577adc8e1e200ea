// Addresses behind the #: "#/jobs/ID/checkpoints/17?with=16".

import { useEffect, useState } from "./vendor/preact-htm.js";

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  const given = Object.fromEntries(new URLSearchParams(query));
  if (parts[0] !== "jobs" || parts.length < 2) return { page: parts.length ? "jobs" : "start", query: given };
  return { page: parts[2] ?? "overview", job: parts[1], item: parts[3], query: given };
}

/** The address of a page of a job. Entries of `query` without a value are left out. */
export function href(job, page = "overview", item = null, query = {}) {
  const parts = ["jobs", job, page, item].filter((each) => each !== null && each !== undefined);
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(kept).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(address, { replace = false } = {}) {
  if (replace) location.replace(address);
  else location.hash = address;
}

export function useRoute() {
  const [route, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => set(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
