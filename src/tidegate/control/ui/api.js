// Requests to the server that this page comes from.

import { refused, token } from "./token.js";

const ROOT = new URL("../", new URL(".", location.href));

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function url(path) {
  return new URL(path.replace(/^\//, ""), ROOT);
}

async function request(method, path, { body, signal } = {}) {
  const headers = { Authorization: `Bearer ${token()}` };
  if (method !== "GET") headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(url(path), {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer.");
  }
  if (answer.ok) return answer;
  if (answer.status === 401) refused();
  throw new ApiError(answer.status, await problem(answer));
}

async function problem(answer) {
  try {
    const { errors } = await answer.json();
    if (errors?.length) return errors.join("\n");
  } catch {
    // Not JSON: a proxy answered.
  }
  return `The server answered ${answer.status}.`;
}

export async function get(path, options) {
  return (await request("GET", path, options)).json();
}

export async function post(path, body = {}) {
  return (await request("POST", path, { body })).json();
}

export async function patch(path) {
  await request("PATCH", path);
}

/** Save what the server answers as a file. A link cannot send a token. */
export async function download(path, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await (await request("GET", path)).blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** The path of a job, or of something below it. */
export function jobPath(id, ...rest) {
  return ["jobs", id, ...rest].map(encodeURIComponent).join("/");
}

/** Yield the names of server-sent events until the connection ends. EventSource cannot send a token. */
export async function* events(path, signal) {
  const answer = await request("GET", path, { signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value.replaceAll("\r\n", "\n");
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const name = /^event: ?(.*)$/m.exec(text.slice(0, end));
      text = text.slice(end + 2);
      yield name ? name[1] : "alive";
    }
  }
}

const PAUSE_MS = 500;

/** Wait for an operation that a POST triggered. Returns its result, or raises what made it fail. */
export async function finished(path) {
  for (;;) {
    const { status, operation } = await get(path);
    if (status.id === "COMPLETED") {
      const cause = operation?.["failure-cause"] ?? operation?.failureCause;
      if (cause) throw new ApiError(0, cause["stack-trace"]);
      return operation ?? {};
    }
    await new Promise((done) => setTimeout(done, PAUSE_MS));
  }
}
