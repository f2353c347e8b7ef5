// Small tools for building the page. Texts become text nodes, never markup: there is no innerHTML anywhere.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An element and its classes (“p.muted”): perhaps attributes, `on…` listeners and a `style` object, then children; strings are text. */
export function make(name, first, ...children) {
  const [tag, ...classes] = name.split("."), element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  return first?.constructor === Object ? fill(element, first, children) : fill(element, {}, [first, ...children]);
}
export const makeSvg = (tag, properties = {}, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** A label as people can see it: spaces and line ends have no ink of their own. */
export function visible(label) {
  if (label === "") return "∅";
  const seen = label.replaceAll("\r", "␍").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
  return seen.trim() === "" ? seen.replaceAll(/\s/g, "␣") : seen;
}

/** A piece inside a text: a space in front or behind is part of it, so it is shown. */
export const piece = (label) => visible(label).replace(/^ | $/g, "␣");

/** A word between marks, its direction kept to itself. */
export const quoted = (label) => make("bdi.quoted", visible(label));

let names = 0;
export const uniqueId = (stem) => `${stem}-${(names += 1)}`;

/** Calls `action` once things have been quiet for `delay` milliseconds. */
export function debounce(action, delay) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), delay);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Browsers offer the clipboard only to pages from this machine or over HTTPS; the old way works elsewhere.
  const field = make("textarea.unseen", { value: text });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

export function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Arrow keys walk among elements of which only one is a tab stop: the one visited last. */
export function rove(container, selector, next) {
  const all = () => [...container.querySelectorAll(selector)];
  const visit = (element) => {
    for (const other of all()) other.tabIndex = other === element ? 0 : -1;
  };
  container.addEventListener("focusin", (event) => {
    const element = event.target.closest(selector);
    if (element) visit(element);
  });
  container.addEventListener("keydown", (event) => {
    const element = event.target.closest(selector);
    if (!element || event.altKey || event.ctrlKey || event.metaKey) return;
    const target = next(all(), element, event.key);
    if (!target) return;
    event.preventDefault();
    visit(target);
    target.focus();
  });
}

/** The usual order: left and up go back, right and down go on. */
export function neighbour(all, element, key) {
  const rtl = getComputedStyle(element).direction === "rtl";
  const step = { ArrowLeft: rtl ? 1 : -1, ArrowUp: -1, ArrowRight: rtl ? -1 : 1, ArrowDown: 1 }[key];
  if (key === "Home") return all[0];
  if (key === "End") return all[all.length - 1];
  return step ? all[clamp(all.indexOf(element) + step, 0, all.length - 1)] : null;
}
