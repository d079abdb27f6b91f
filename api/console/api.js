// The public HTTP API: requests, problems, and event streams that resume after a lost connection.

const BASE = new URL("..", import.meta.url); // the console works behind any prefix
const RETRY_MS = [500, 1000, 2000, 5000];
const UNREACHED = new Set([502, 503, 504]); // a proxy says so of a server that does not answer

const pause = (failures) => new Promise((wake) => setTimeout(wake, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]));

class Problem extends Error {
  constructor(status, body) {
    const found = (body.errors ?? []).map((one) => `${one.pointer || one.code}: ${one.message ?? one.code}`);
    super([body.detail || body.title || `The server answered ${status}.`, ...found].join(" "));
    this.status = status;
    this.body = body;
    this.type = (body.type ?? "").replace("urn:errand:problem:", "");
  }
}

export class Away extends Error {
  constructor(method) {
    super(method === "GET" ? "The server does not answer. The console keeps trying." : "The server does not answer; press again.");
  }
}

export function address(path) {
  return new URL(path.replace(/^\//, ""), BASE);
}

async function send(method, path, { body, raw, key, signal, accept = "application/json", headers = {} } = {}) {
  const all = { Accept: accept, ...headers };
  if (body !== undefined) all["Content-Type"] = "application/json";
  if (key) all["Idempotency-Key"] = key;
  let response;
  try {
    response = await fetch(address(path), {
      method,
      headers: all,
      body: raw ?? (body === undefined ? undefined : JSON.stringify(body)),
      credentials: "same-origin",
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away(method);
  }
  if (response.status === 401) window.dispatchEvent(new Event("signed-out"));
  if (!response.ok) {
    let problem = {};
    try {
      problem = await response.json();
    } catch {
      // a proxy's page and not a problem of ours
    }
    throw new Problem(response.status, problem);
  }
  return response;
}

async function content(response) {
  if (response.status === 204) return null;
  return response.headers.get("content-type")?.includes("json") ? response.json() : response.text();
}

export async function get(path, query = {}, signal) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") parameters.append(name, one);
  }
  const text = parameters.toString();
  return content(await send("GET", text ? `${path}?${text}` : path, { signal }));
}

export async function getText(path, accept) {
  return (await send("GET", path, { accept })).text();
}

// crypto.randomUUID exists only on https and localhost
function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// A separate key for each press of a button: a request that is repeated after a lost answer happens once.
// `kept` is called when the server does not answer: the request is then repeated until it does.
export async function post(path, body, { once = false, kept = null } = {}) {
  const options = { body, key: once ? randomKey() : undefined };
  for (let failures = 0; ; failures++) {
    try {
      return await content(await send("POST", path, options));
    } catch (error) {
      const away = error instanceof Away || UNREACHED.has(error.status);
      if (!once || !away || (failures && !kept)) throw error;
      if (!kept) continue;
      kept();
      await pause(failures);
    }
  }
}

export async function remove(path) {
  return content(await send("DELETE", path));
}

export async function signIn(key) {
  return content(await send("POST", "/console/session", { headers: { Authorization: `Bearer ${key}` } }));
}

export async function upload(file) {
  return content(await send("POST", `/files?name=${encodeURIComponent(file.name)}`, { raw: file }));
}

// Follows a feed until the returned function is called. `on(event)` gets each event, `state(connected)` changes.
// It begins after the event `after`; where events are missing it continues from `restart`.
// `opened()` comes with each connection, and when the feed has ended: what was read before it may be old by now.
export function follow(path, on, { after = "latest", restart = "latest", state = () => {}, lost = () => {}, opened = () => {} } = {}) {
  const stop = new AbortController();
  let position = after;
  let failures = 0;

  async function read() {
    const query = position === null ? "" : `?after=${encodeURIComponent(position)}`;
    const response = await send("GET", path + query, { accept: "text/event-stream", signal: stop.signal });
    opened();
    if (response.status === 204) return false;
    failures = 0;
    state(true);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return true;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) take(frame);
    }
  }

  function take(frame) {
    let data = "";
    for (const line of frame.split("\n")) {
      if (line.startsWith("id:")) position = line.slice(3).trim();
      else if (line.startsWith("data:")) data += line.slice(5);
    }
    if (data) on(JSON.parse(data));
  }

  (async () => {
    while (!stop.signal.aborted) {
      try {
        if (!(await read())) return;
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof Problem && [401, 403, 404].includes(error.status)) return state(false, error);
        if (error instanceof Problem && [409, 410].includes(error.status)) {
          position = restart;
          lost(); // events are missing: what shows them must read everything again
          if (error.type === "content-removed") return; // and there will be none: the content was removed
        }
      }
      state(false);
      await pause(failures++);
    }
  })();
  return () => stop.abort();
}
