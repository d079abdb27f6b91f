// Texts for people: times, sizes, costs, and strings of strangers without control characters.

// controls, escape sequences' first character, marks that change the direction of what follows, and what nobody sees
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

// made once: each takes longer than a row of a list
const NUMBER = new Intl.NumberFormat();
const CLOCK = new Intl.DateTimeFormat([], { dateStyle: "short", timeStyle: "medium" });
export const HOURS = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });
export const DAY = new Intl.DateTimeFormat([], { day: "numeric", month: "short" });

export function plain(text) {
  return text.replace(HIDDEN, (found) => (found === "\r" ? "" : `⟨${found.codePointAt(0).toString(16)}⟩`));
}

export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "";
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function ago(moment) {
  if (!moment) return "";
  const passed = Date.now() - new Date(moment).getTime();
  if (passed < 5000) return "now";
  for (const [unit, name] of [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"]]) {
    if (passed >= unit) return `${Math.floor(passed / unit)} ${name} ago`;
  }
  return `${Math.floor(passed / 1000)} s ago`;
}

export function clock(moment) {
  return moment ? CLOCK.format(new Date(moment)) : "";
}

export function cost(usd) {
  if (usd === null || usd === undefined) return "unknown cost";
  return usd < 0.01 && usd > 0 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
}

export function count(number, noun, many = `${noun}s`) {
  return `${NUMBER.format(number)} ${number === 1 ? noun : many}`;
}

export function bytes(size) {
  if (size < 1024) return `${size} B`;
  if (size < 1024 ** 2) return `${(size / 1024).toFixed(1)} KiB`;
  return `${(size / 1024 ** 2).toFixed(1)} MiB`;
}

export function tokens(usage) {
  const names = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"];
  return names.reduce((sum, name) => sum + (usage?.[name] ?? 0), 0);
}

export function short(text, length = 160) {
  const line = String(text ?? "").replace(/\s+/g, " ").trim();
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}

// What fits on a page; of a huge text the beginning, and how much is left out.
export function bounded(text, most = 100_000) {
  return text.length > most ? `${text.slice(0, most)}\n… ${(text.length - most).toLocaleString()} more characters` : text;
}

export function json(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2);
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}

// For a narrow column: 7.5 s, 1:52, 3 h 12.
export function brief(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "";
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 60) return seconds < 10 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds)} s`;
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  return seconds < 3600 ? `${Math.floor(seconds / 60)}:${two(seconds % 60)}` : `${Math.floor(seconds / 3600)} h ${two((seconds % 3600) / 60)}`;
}

export function amount(number) {
  if (number < 10_000) return NUMBER.format(number);
  return number < 1_000_000 ? `${Math.round(number / 1000)}k` : `${NUMBER.format(Math.round(number / 100_000) / 10)}M`;
}

export function time(moment) {
  const at = new Date(moment);
  const today = new Date().toDateString() === at.toDateString();
  return (today ? HOURS : DAY).format(at);
}

export function left(deadline) {
  const rest = new Date(deadline) - Date.now();
  return rest > 0 ? `${duration(rest)} left` : "expired";
}

export const took = (one) => (one.ended_at ? new Date(one.ended_at) : Date.now()) - new Date(one.started_at ?? one.created_at);
