// Elements without HTML strings: every text becomes a text node, so nothing that an agent wrote can run.

import { plain } from "./format.js";
import { give, handle, lay, setUp } from "./keyed.js";

const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "hidden", "open", "readOnly", "indeterminate"]);
const SHOWN = new Set(["title", "aria-label", "placeholder", "alt"]); // attributes that people read

// `key` names an element among its siblings, `own` makes it an island (see keyed.js), `css` sets its style.
export function h(tag, { key, own, stamp, live, css, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  setUp(element, { key, own, stamp, live });
  append(element, children);
  for (const [name, value] of Object.entries(attributes)) {
    if (PROPERTIES.has(name)) {
      if (value !== undefined && value !== null) give(element, name, value);
    } else if (value === null || value === undefined || value === false) continue;
    else if (name.startsWith("on")) handle(element, name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : SHOWN.has(name) ? plain(String(value)) : String(value));
  }
  for (const [name, value] of Object.entries(css ?? {})) element.style.setProperty(name, String(value));
  return element;
}

function nodes(children) {
  return children.flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (child instanceof Node ? child : document.createTextNode(plain(String(child)))));
}

export function append(element, children) {
  element.append(...nodes(children));
}

// Gives an element these children, in place.
export function fill(element, ...children) {
  lay(element, nodes(children));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) element.setAttribute(name, plain(String(value)));
  append(element, children);
  return element;
}

export function link(hash, ...children) {
  return h("a", { href: hash }, ...children);
}

// A button that says what went wrong beside itself, and cannot be pressed twice while its request runs.
export function action(label, run, attributes = {}) {
  const press = async (event) => {
    const button = event.currentTarget;
    event.stopPropagation();
    if (button.getAttribute("aria-busy")) return; // and not `disabled`, which would take the focus from it
    button.setAttribute("aria-busy", "true");
    const problem = button.nextElementSibling;
    problem.replaceChildren();
    try {
      await run();
    } catch (error) {
      problem.replaceChildren(plain(error.message));
    } finally {
      button.removeAttribute("aria-busy");
    }
  };
  return h("span", { class: "action", key: attributes.key }, h("button", { type: "button", ...attributes, key: undefined, onclick: press }, label), h("span", { class: "problem", role: "alert", own: true }));
}

// A dialog over the page; `build` gets the function that closes it.
export function dialog(title, build) {
  const box = h("dialog", { "aria-label": title });
  const close = () => box.close();
  box.addEventListener("close", () => box.remove());
  // Escape closes it at once, `close` comes later: until then a field of it would swallow the keys of the page.
  box.addEventListener("cancel", (event) => event.target === box && document.activeElement?.blur());
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) box.querySelector("button.primary, button.danger")?.click();
  });
  append(box, [h("h2", {}, title), build(close)]);
  document.body.append(box);
  box.showModal();
  return box;
}

// A dialog that asks for a text; `run` gets it, and the function that closes it.
export function ask(title, question, label, run, { about = "", kind = "primary" } = {}) {
  dialog(title, (close) => {
    const text = h("textarea", { rows: 3, id: "asked", autofocus: true });
    const press = async () => { await run(text.value, close); close(); };
    return [
      about ? h("p", { class: "soft" }, about) : null,
      h("div", { class: "field" }, h("label", { for: "asked" }, question), text),
      h("footer", {}, h("button", { type: "button", onclick: close }, "Back"), action(label, press, { class: kind })),
    ];
  });
}

export function confirmed(title, explanation, label, run) {
  dialog(title, (close) => [
    h("p", { class: "soft" }, explanation),
    h("footer", {},
      h("button", { type: "button", onclick: close, autofocus: true }, "Keep it"),
      action(label, async () => {
        await run();
        close();
      }, { class: "danger" }),
    ),
  ]);
}
