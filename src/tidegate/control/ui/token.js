// The token of the server. It arrives behind the # of the address, which browsers do not send, and stays in this tab.

const KEY = "tidegate-token";
const listeners = new Set();
let current = read();

function read() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function token() {
  return current;
}

export function setToken(text) {
  current = text.trim();
  try {
    sessionStorage.setItem(KEY, current);
  } catch {
    // The token lasts as long as the page.
  }
}

/** Move a token out of the address bar, so that it is neither bookmarked nor seen. */
export function takeTokenFromAddress() {
  const found = /^#token=([^&]*)(?:&(.*))?$/.exec(location.hash);
  if (!found) return;
  setToken(decodeURIComponent(found[1]));
  history.replaceState(null, "", `#${found[2] ?? "/"}`);
}

/** Call `listener` whenever the server refuses the token. */
export function onRefused(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function refused() {
  for (const each of listeners) each();
}
