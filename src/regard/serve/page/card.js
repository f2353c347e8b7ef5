// A model card as the page's own elements. Whoever made the model wrote it: it becomes headings, paragraphs, lists, tables,
// code and links, and nothing else. Pictures are left out; they would ask other machines.

import { make } from "./dom.js";

// What may stand inside a line. Every kind is short, so that no card takes long.
const INLINE = new RegExp([
  /\\([\\`*_{}[\]()#+.!|<>-])/, // 1: a character taken as it is
  /`([^`]{1,2000})`/, // 2: code
  /!\[([^\]]{0,300})\]\([^()\s]{0,2000}\)/, // 3: a picture
  /\[([^[\]]{1,300})\]\(([^()\s]{1,2000})\)/, // 4, 5: a link
  /<(https?:[^<>\s]{1,2000})>/, // 6: an address
  /\*\*([^*]{1,1000})\*\*/, // 7: strong
  /(?<![\w*])[*_]([^*_]{1,1000})[*_](?![\w*])/, // 8: emphasis
].map(({ source }) => source).join("|"), "g");

const FENCE = /^ {0,3}(```|~~~)/, HEADING = /^(#{1,6}) +(.*)$/, ITEM = /^ {0,3}(?:[-*+]|(\d{1,9})[.)]) +(.*)$/;
const MACHINES = /^---\n[^]*?\n---\s+/; // what stands in front, between dashes, is for model hubs

function link(text, address) {
  if (!/^https?:/i.test(address) || !URL.canParse(address)) return text;
  return make("a", { href: address, title: address, target: "_blank", rel: "noopener noreferrer" }, text);
}

/** The text of a line, as what the card's marks make of it. */
function inline(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    const [all, plain, code, , label, address, bare, strong, emphasis] = found;
    parts.push(text.slice(end, found.index));
    end = found.index + all.length;
    if (plain) parts.push(plain);
    else if (code) parts.push(make("code", code));
    else if (label) parts.push(link(label, address));
    else if (bare) parts.push(link(bare, bare));
    else if (strong) parts.push(make("strong", strong));
    else if (emphasis) parts.push(make("em", emphasis));
  }
  return [...parts, text.slice(end)].filter(Boolean);
}

/** The cells of a row; a bar behind a backslash is part of one. */
const cells = (line) => line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "").split(/(?<!\\)\|/).map((cell) => inline(cell.trim().replaceAll("\\|", "|")));

/** Whether a table begins: below its first line stand dashes and bars only. */
const isTable = (line, below = "") => line.includes("|") && below.includes("|") && below.includes("-") && /^[\s:|-]+$/.test(below);

function table([head, , ...rows]) {
  const names = cells(head), bare = names.every((name) => !name.length);
  return make("div.scroller", { tabindex: "0" }, make("table",
    bare ? null : make("thead", make("tr", names.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", rows.map((row) => make("tr", cells(row).map((cell) => make("td", cell)))))));
}

/** The kind of list that a line is an item of; null where it begins none. */
const kindOf = (line) => (ITEM.test(line) ? (ITEM.exec(line)[1] ? "ol" : "ul") : null);

function list(lines) {
  const items = [];
  for (const line of lines) {
    if (ITEM.test(line)) items.push(ITEM.exec(line)[2]);
    else items[items.length - 1] += ` ${line.trim()}`;
  }
  return make(kindOf(lines[0]), items.map((item) => make("li", inline(item))));
}

/** How many lines from `start` on belong together. */
function run(lines, start, belongs) {
  let end = start;
  while (end < lines.length && belongs(lines[end], end)) end += 1;
  return end;
}

/** The next part of a card, and where the one after it begins. */
function part(lines, at) {
  const line = lines[at], fence = FENCE.exec(line)?.[1], heading = HEADING.exec(line);
  if (fence) {
    const end = run(lines, at + 1, (each) => !each.trim().startsWith(fence));
    return [make("pre", { tabindex: "0" }, lines.slice(at + 1, end).join("\n")), end + 1];
  }
  if (heading) return [make(`h${Math.min(6, heading[1].length + 2)}`, inline(heading[2])), at + 1];
  if (isTable(line, lines[at + 1])) {
    const end = run(lines, at, (each) => each.includes("|"));
    return [table(lines.slice(at, end)), end];
  }
  if (kindOf(line)) {
    const end = run(lines, at, (each) => kindOf(each) === kindOf(line) || (!kindOf(each) && /^\s+\S/.test(each)));
    return [list(lines.slice(at, end)), end];
  }
  const ends = (each, i) => !each.trim() || FENCE.test(each) || HEADING.test(each) || ITEM.test(each) || isTable(each, lines[i + 1]);
  const end = Math.max(at + 1, run(lines, at, (each, i) => !ends(each, i))), said = inline(lines.slice(at, end).join(" "));
  return [said.length ? make("p", { dir: "auto" }, said) : null, end];
}

export function drawCard(text) {
  const lines = text.replaceAll("\r\n", "\n").replace(MACHINES, "").split("\n"), parts = [];
  for (let at = 0; at < lines.length;) {
    const [element, next] = part(lines, at);
    if (element) parts.push(element);
    at = next;
  }
  return make("div.card", parts);
}
