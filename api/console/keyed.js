// Updates in place: what a view draws again is laid over what is in the page. An element whose key or kind is the same
// stays: with its focus, its place in a scrolled pane, and what a person has typed. Only what differs is changed.

const HANDLERS = Symbol("handlers");
const GIVEN = Symbol("given"); // properties as the view gave them, whatever a person has made of them
const KEY = Symbol("key");
const OWN = Symbol("own"); // an island: what is in it is its own matter. It stays while its stamp is the same
const KEPT = new Set(["aria-busy", "open"]); // what a person does, or what runs

let components = 0;

// `live`: a part that a view holds on to; nothing else is ever laid over it.
export function setUp(element, { key, own, stamp, live }) {
  element[GIVEN] = {};
  if (live) element[KEY] = `live ${++components}`;
  if (key !== undefined && key !== null) element[KEY] = String(key);
  if (own) element[OWN] = String(stamp ?? "");
}

export function give(element, name, value) {
  element[GIVEN][name] = value;
  element[name] = value;
}

// One listener for each kind of event, which calls the function of the latest drawing.
export function handle(element, type, run) {
  const known = (element[HANDLERS] ??= {});
  if (!known[type]) element.addEventListener(type, (event) => element[HANDLERS][type]?.(event));
  known[type] = run;
}

// Lets the element have exactly these children.
export function lay(parent, wanted) {
  const held = document.activeElement;
  const inside = held && held !== parent && parent.contains(held);
  const keyed = new Map();
  for (const one of parent.childNodes) if (one[KEY] !== undefined) keyed.set(one[KEY], one);
  const reused = new Set(wanted.filter((one) => one.parentNode === parent));
  const used = new Set();
  let at = parent.firstChild;
  for (const one of wanted) {
    while (at && used.has(at)) at = at.nextSibling;
    let found = one;
    if (!reused.has(one)) {
      const known = one[KEY] !== undefined ? keyed.get(one[KEY]) : unkeyed(at, one, reused, used);
      if (known && !used.has(known) && !reused.has(known) && alike(known, one)) {
        overlay(known, one);
        found = known;
      }
    }
    used.add(found);
    if (found === at) at = at.nextSibling;
    else parent.insertBefore(found, at);
  }
  for (const one of [...parent.childNodes]) if (!used.has(one)) one.remove();
  if (inside && held !== document.activeElement && held.isConnected) held.focus({ preventScroll: true }); // it was moved
}

// The next child without a key, of the same kind: those before it have gone.
function unkeyed(at, one, reused, used) {
  for (let looked = 0; at && looked < 8; at = at.nextSibling, looked++) {
    if (at[KEY] === undefined && !reused.has(at) && !used.has(at) && alike(at, one)) return at;
  }
  return null;
}

function alike(known, one) {
  return known.nodeName === one.nodeName && known[KEY] === one[KEY] && known[OWN] === one[OWN] && known.type === one.type;
}

export function overlay(known, one) {
  if (known.nodeType === Node.TEXT_NODE) {
    if (known.data !== one.data) known.data = one.data;
    return;
  }
  if (one[HANDLERS]) for (const [type, run] of Object.entries(one[HANDLERS])) handle(known, type, run);
  for (const type of Object.keys(known[HANDLERS] ?? {})) if (!one[HANDLERS]?.[type]) known[HANDLERS][type] = null;
  if (known[OWN] !== undefined) return;
  for (const { name, value } of one.attributes) if (name !== "style" && known.getAttribute(name) !== value) known.setAttribute(name, value);
  for (const { name } of [...known.attributes]) if (name !== "style" && !KEPT.has(name) && !one.hasAttribute(name)) known.removeAttribute(name);
  if (known.style.cssText !== one.style.cssText) known.style.cssText = one.style.cssText;
  lay(known, [...one.childNodes]);
  for (const name of Object.keys({ ...known[GIVEN], ...one[GIVEN] })) {
    const next = one[GIVEN]?.[name];
    if (known[GIVEN]?.[name] !== next) known[name] = next ?? false;
  }
  known[GIVEN] = one[GIVEN];
}
