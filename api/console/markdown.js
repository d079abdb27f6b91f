// Markdown as elements: headings, lists, code, quotes, tables, emphasis. Never HTML; links only to http and https.

import { diffView } from "./diff_view.js";
import { h } from "./dom.js";

const MOST = 100_000; // characters that are shown
// every part ends soon: text that is written to make the search for its end slow must not stop the page
const INLINE = /(`[^`\n]+`)|\*\*([^*\n]+)\*\*|\*([^*\n]+)\*|\[([^[\]\n]{1,500})\]\((https?:\/\/[^\s()]{1,2000})\)/g;

export function markdown(source) {
  const text = String(source ?? "");
  const box = h("div", { class: "markdown" });
  const lines = text.slice(0, MOST).split("\n");
  let at = 0;
  while (at < lines.length) at = block(lines, at, box);
  if (text.length > MOST) box.append(h("p", { class: "why" }, `… ${(text.length - MOST).toLocaleString()} more characters`));
  return box;
}

function block(lines, at, box) {
  const line = lines[at];
  if (!line.trim()) return at + 1;
  if (line.startsWith("```")) {
    let end = at + 1;
    while (end < lines.length && !lines[end].startsWith("```")) end++;
    const code = lines.slice(at + 1, end).join("\n");
    box.append(/^```diff\b/.test(line) ? diffView(code) : h("pre", {}, code));
    return end + 1;
  }
  const heading = /^(#{1,6})\s+(.*)$/.exec(line);
  if (heading) {
    box.append(h("p", { class: `heading level${heading[1].length}` }, ...inline(heading[2])));
    return at + 1;
  }
  if (line.startsWith("|") && /^\|?[\s:|-]+\|/.test(lines[at + 1] ?? "")) return table(lines, at, box);
  for (const [pattern, tag] of [[/^\s*[-*+]\s+/, "ul"], [/^\s*\d+[.)]\s+/, "ol"]]) {
    if (pattern.test(line)) {
      const end = run(lines, at, (one) => pattern.test(one));
      box.append(h(tag, {}, ...lines.slice(at, end).map((one) => h("li", {}, ...inline(one.replace(pattern, ""))))));
      return end;
    }
  }
  if (line.startsWith(">")) {
    const end = run(lines, at, (one) => one.startsWith(">"));
    box.append(h("blockquote", {}, ...inline(lines.slice(at, end).map((one) => one.replace(/^>\s?/, "")).join("\n"))));
    return end;
  }
  const end = run(lines, at, (one) => one.trim() && !/^(```|#{1,6}\s|>|\||\s*[-*+]\s|\s*\d+[.)]\s)/.test(one));
  box.append(h("p", {}, ...inline(lines.slice(at, Math.max(end, at + 1)).join("\n"))));
  return Math.max(end, at + 1);
}

function run(lines, at, fits) {
  let end = at;
  while (end < lines.length && fits(lines[end])) end++;
  return end;
}

function table(lines, at, box) {
  const end = run(lines, at, (one) => one.startsWith("|"));
  const cells = (line) => line.replace(/^\||\|\s*$/g, "").split("|").map((cell) => cell.trim());
  const row = (line, tag) => h("tr", {}, ...cells(line).map((cell) => h(tag, {}, ...inline(cell))));
  box.append(h("table", {}, h("thead", {}, row(lines[at], "th")), h("tbody", {}, ...lines.slice(at + 2, end).map((line) => row(line, "td")))));
  return end;
}

function inline(text) {
  const parts = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    parts.push(text.slice(last, match.index));
    if (match[1]) parts.push(h("code", {}, match[1].slice(1, -1)));
    else if (match[2]) parts.push(h("strong", {}, match[2]));
    else if (match[3]) parts.push(h("em", {}, match[3]));
    else parts.push(h("a", { href: match[5], rel: "noopener noreferrer", target: "_blank" }, match[4]));
    last = match.index + match[0].length;
  }
  parts.push(text.slice(last));
  return parts;
}
