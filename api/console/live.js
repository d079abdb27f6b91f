// One stream of the tenant's notices, shared by all views, and the number of open requests in the page's title.

import { Away, follow, get } from "./api.js";
import { fill, h } from "./dom.js";

const AGAIN_MS = 2000;
const listeners = new Set();
let stop = null;
let waiting = 0;

// The number of the newest notice. It is read before any view: what happens after it reaches every view, however late
// the stream is connected. Null for a key that may not read.
export async function position() {
  try {
    return (await get("/notifications", { limit: 1 })).next_after;
  } catch (error) {
    if (error.status === 403) return null;
    throw error;
  }
}

export function start(after, state) {
  stop?.();
  stop = follow("/notifications", (notice) => listeners.forEach((listener) => listener(notice)), {
    after,
    restart: null,
    state,
    lost: () => listeners.forEach((listener) => listener({ type: "lost" })),
  });
  badge();
}

export function end() {
  stop?.();
  stop = null;
}

export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export async function badge() {
  try {
    waiting = (await get("/summary")).open_requests;
  } catch {
    return; // the next notice asks again
  }
  const label = document.querySelector("[data-waiting]");
  if (label) label.textContent = waiting ? String(waiting) : "";
  document.title = `${waiting ? `(${waiting}) ` : ""}Errand`;
}

// Calls `run` again and again; returns the function that ends it.
export function every(ms, run) {
  const timer = setInterval(run, ms);
  return () => clearInterval(timer);
}

// Ends what a view has begun, when it is left.
export const ends = (...all) => () => all.forEach((end) => end());

// Calls `run` soon, once for many calls, and again if it was called meanwhile.
export function soon(run, ms = 150) {
  let timer = null;
  let running = false;
  let again = false;
  let pause = ms;
  return function trigger() {
    if (running) {
      again = true;
      return;
    }
    timer ??= setTimeout(async () => {
      timer = null;
      running = true;
      try {
        const began = performance.now();
        await run();
        pause = Math.min(5000, Math.max(ms, 2 * (performance.now() - began))); // a slow view asks less often
      } catch {
        // the server is unavailable for a moment: the next notice, or the view's own timer, trys again
      } finally {
        running = false;
        if (again) {
          again = false;
          trigger();
        }
      }
    }, pause);
  };
}

// Calls `run`, which is asynchronous, unless it still runs: then its result counts for this call, too.
export function single(run) {
  let running = null;
  return () => (running ??= run().finally(() => { running = null; }));
}

// Runs `run` until it succeeds, or is refused; `failed` gets each error. Returns a function that ends it.
export function insist(run, failed) {
  let timer = null;
  let left = false;
  (async function attempt() {
    try {
      await run();
    } catch (error) {
      if (left) return;
      failed(error);
      if (error instanceof Away || error.status === 429 || error.status >= 500) timer = setTimeout(attempt, AGAIN_MS);
    }
  })();
  return () => {
    left = true;
    clearTimeout(timer);
  };
}

// Keeps a view current: `load` runs at each connection, and soon after each event that `matters`.
export function keepCurrent(path, load, { main, problem, matters, ms }) {
  let drawn = false;
  let left = false;

  function fail(error) {
    if (left) return; // another view is shown by now
    if (drawn || error instanceof Away) fill(problem, error.message);
    else fill(main, h("div", { class: "page" }, h("h1", {}, "Not found"), h("p", { role: "alert", class: "notice" }, error.message), h("p", {}, h("a", { class: "to", href: "#/" }, "Back to the tasks"))));
  }

  async function read() {
    try {
      await load();
      drawn = true;
      fill(problem);
    } catch (error) {
      fail(error);
    }
  }

  const refresh = soon(read, ms);
  const again = () => (drawn ? refresh() : read());
  const stop = follow(path, (event) => matters(event) && refresh(), {
    opened: again,
    lost: again,
    state(connected, error) {
      if (connected) return;
      if (!drawn) read(); // what is stored may be shown all the same, and if not, why
      else if (error) fail(error);
    },
  });
  return () => {
    left = true;
    stop();
  };
}

const count = soon(badge, 300);
listen((notice) => {
  if (/^(input_|session_|lost)/.test(notice.type)) count();
});
setInterval(() => stop && count(), 30_000); // a request that expires gives no notice
