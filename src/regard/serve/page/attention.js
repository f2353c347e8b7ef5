// Attention: every layer and head of the model for one text, as an overview, as lines and as a matrix.

import { post } from "./api.js";
import { Arcs } from "./arcs.js";
import { clamp, debounce, make, quoted, rove } from "./dom.js";
import { Matrix, paint, scale } from "./heat.js";
import { button, empty, examples, exports, kindName, readOf, segments, status, textField } from "./parts.js";
import { firstTry, readBy } from "./tries.js";
import { has, number, percent, t } from "./words.js";

export const view = { id: "attention", suits: (model) => (model.attention?.length ?? 0) > 0, open: (root, app) => new Attention(root, app) };

// Vaswani et al. show such a pair: one word at the end decides what “it” stands for. German ones share a gender.
const both = (text, ...ends) => ends.map((end) => text.replace("…", end));
const PAIRS = {
  en: { pair: both("The animal didn't cross the street because it was too ….", "tired", "wide"), watched: "it", nouns: ["animal", "street"] },
  de: { pair: both("Der Koffer passt nicht in den Schrank, weil er zu … ist.", "groß", "klein"), watched: "er", nouns: ["Koffer", "Schrank"] },
};
// Beyond this many tokens, an overview of all heads would load megabytes; the numbers of each head stand in its place.
const LARGEST_TILE = 160;
const FRAME = 8; // pixels around the tiles, for the mark of the chosen one
// A weight that changes by less has not moved, for a reader's eye.
const MOVES = 0.1;
const MEAN = "mean";

/** Of the mean of heads, distances and shares are averages; the entropy is not. */
const entropyOf = (map, head) => (head === MEAN ? map.mean_entropy : map.entropy[head]);
const strongest = (weights, count) => [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, count).filter((i) => weights[i] >= 0.005);

/** The number of the word that each piece belongs to, as spaces in the text tell; null where a piece is not in it. */
function wordsOf(labels, text) {
  let at = 0, word = -1;
  const found = labels.map((label) => {
    const space = /^\s*/.exec(text.slice(at))[0].length;
    if (/^(‹.*›|␣)$/.test(label)) return (word += 1);
    if (space || at === 0) word += 1;
    at += space;
    if (!text.toLowerCase().startsWith(label.toLowerCase(), at)) return null;
    at += label.length;
    return word;
  });
  return found.includes(null) ? null : found;
}

class Attention {
  constructor(root, app) {
    this.app = app;
    this.common = app.notesOf("common");
    this.notes = app.notesOf("attention", { kind: null, layer: null, head: MEAN, picture: "arcs" });
    const { first, text, target } = this.common;
    this.text = (first ? first.source : text) || app.firstText(app.model.task === "translate" ? firstTry(app.model) : PAIRS.en.pair[0]);
    this.given = { text: this.text, target: first ? first.text : target };
    this.captures = [];
    this.shown = 0;
    this.pinned = false;
    this.query = this.key = null;
    this.weights = new Map();
    this.later = debounce(() => this.capture([this.text]), 450);
    this.build(root);
    this.recolour = () => this.map && (this.buildAtlas(), this.drawHead());
    document.addEventListener("colours", this.recolour);
    this.resized = debounce(() => this.map && this.drawHead(), 150);
    this.observer = new ResizeObserver(this.resized);
    this.observer.observe(this.detail);
    this.capture([this.text]);
  }

  close() {
    this.later.cancel();
    this.resized.cancel();
    this.observer.disconnect();
    this.tiles?.abort();
    this.status.stop();
    this.headStatus.stop();
    document.removeEventListener("colours", this.recolour);
  }

  build(root) {
    const { app } = this, known = PAIRS[readBy(app.model)];
    const { box, area } = textField({ label: t("attention.text"), value: this.text, limit: app.limits.text, input: (text) => {
      this.text = text;
      this.later();
    } });
    this.area = area;
    this.body = make("div.attention-body");
    this.written = make("p.written", { dir: "auto" });
    this.pair = make("div.pair");
    this.status = status(this.written, this.pair, this.body);
    this.headStatus = status(make("div"));
    this.kinds = make("div");
    this.story = make("p.story");
    this.atlas = make("table.atlas", { role: "grid", "aria-label": t("attention.atlas") });
    rove(this.atlas, "td[role=gridcell]", (all, cell, key) => this.moveInAtlas(all, cell, key));
    this.detail = make("section.panel.detail", { "aria-label": t("attention.detail") });
    root.append(
      make("div.ask", box,
        make("div.row", known ? examples([[known.pair[0], `${known.watched} → ${known.nouns.join(" / ")}`]], () => this.comparePair(known)) : null, this.status.box)),
      this.written, this.pair, this.body);
    this.buildDetail();
    this.body.append(make("section.chooser", { "aria-label": t("attention.choose") }, this.kinds, this.story, make("div.atlas-frame", this.atlas), make("p.hint", t("attention.hint"))), this.detail);
    this.body.hidden = true;
  }

  buildDetail() {
    this.title = make("h2");
    this.facts = make("dl.facts");
    this.readout = make("p.readout", { role: "status" });
    const point = (query, key) => this.pinned || this.trace(query, key), pick = (query, key) => this.pin(query, key);
    this.matrix = new Matrix({ label: t("attention.matrix"), room: () => this.detail.clientWidth - 56, point, pick });
    this.arcs = new Arcs({ point, pick });
    this.arcsFrame = make("div.scroller", this.arcs.element);
    this.matrixFrame = make("div.scroller", this.matrix.element);
    this.caption = make("p.caption");
    const pictures = segments({ label: t("attention.picture"), options: [["arcs", t("attention.arcs")], ["matrix", t("matrix")]], value: this.notes.picture, change: (picture) => {
      this.notes.picture = picture;
      this.drawHead();
    } });
    const picture = () => ({ ...this.textsOf(this.current()), name: this.map.name, layer: this.map.layer, ...(this.head === MEAN ? {} : { head: this.head }) });
    this.detail.append(
      make("div.detail-head", make("div", this.title, this.facts), pictures),
      this.readout, this.arcsFrame, this.matrixFrame, this.caption,
      make("div.row.foot", this.headStatus.box, make("span.spring"),
        exports({ app: this.app, desk: this.headStatus, body: picture, what: (format) => (format === "html" ? "page" : this.notes.picture) })));
    this.detail.addEventListener("keydown", (event) => event.key === "Escape" && this.release());
  }

  // ---- Asking

  current() {
    return this.captures[this.shown];
  }

  /** Reads one text, or the two of a pair. */
  capture(texts, known = null) {
    if (!texts[0].trim()) {
      this.status.stop();
      this.body.hidden = true;
      this.pair.replaceChildren();
      this.written.replaceChildren(empty(t("attention.empty")));
      return;
    }
    const one = (text, signal) => {
      const target = text === this.given.text ? this.given.target : "";
      return post("api/attention", { ...this.app.body(), text, ...(target ? { target } : {}) }, signal);
    };
    this.status.ask((signal) => Promise.all(texts.map((text) => one(text, signal))), (answers) => {
      this.captures = answers.map((answer, i) => ({ ...answer, asked: texts[i] }));
      this.watched = known?.watched;
      this.shown = 0;
      this.weights.clear();
      if (known) this.status.ask((signal) => this.seek(known, signal), (found) => (Object.assign(this.notes, found), this.draw()));
      else this.draw();
    });
  }

  comparePair(known) {
    const { pair } = known;
    this.pairTexts = pair;
    this.text = this.area.value = pair[0];
    // A word looks back and forth in an encoder only; in a decoder “it” cannot know how the sentence ends.
    if (this.app.model.attention.some((one) => one.name === "encoder")) this.notes.kind = "encoder";
    this.capture(pair, known);
  }

  /** The head in which the weight on a noun moves most or, where none moves, the one that looks hardest at one. */
  async seek({ nouns }, signal) {
    const { captures } = this, found = [];
    this.chooseKind();
    for (const map of this.layers()) for (const head of Array(map.heads).keys()) {
      signal.throwIfAborted();
      const looks = await Promise.all(captures.map(async (capture) => this.joined(capture, await this.headOf(capture, this.same(capture, map), head), map)));
      const [one, other] = looks.map((look) => nouns.map((noun) => look?.weights[look.words.findIndex((word) => word.startsWith(noun))] ?? 0));
      found.push({ layer: map.layer, head, weight: Math.max(...one, ...other), move: Math.max(...one.map((weight, i) => Math.abs(weight - other[i]))) });
    }
    const most = (of) => found.reduce((a, b) => (b[of] > a[of] ? b : a)), { move } = most("move"), { layer, head } = most(move < MOVES ? "weight" : "move");
    return { layer, head, still: move < MOVES ? { nouns: nouns.join(" / "), most: number(Math.ceil(100 * move) / 100) } : null };
  }

  /** What was read and, by a model that translates, what was written. */
  textsOf({ source, target }) {
    return { ...this.app.body(), ...(source === null ? { text: target } : { text: source, target }) };
  }

  /** One head's weights; the overview and the large picture ask for the same ones, so they are kept. */
  headOf(capture, map, head) {
    const place = `${this.captures.indexOf(capture)} ${map.name} ${map.layer} ${head}`;
    if (!this.weights.has(place)) {
      const body = { ...this.textsOf(capture), name: map.name, layer: map.layer, head };
      const answer = post("api/attention/head", body).then(({ weights }) => weights);
      this.weights.set(place, answer);
      // What failed may be asked for again.
      answer.catch(() => this.weights.delete(place));
    }
    return this.weights.get(place);
  }

  // ---- The overview

  layers() {
    return this.current().maps.filter((map) => map.name === this.notes.kind).sort((a, b) => a.layer - b.layer);
  }

  chooseKind() {
    const kinds = [...new Set(this.current().maps.map((map) => map.name))];
    if (!kinds.includes(this.notes.kind)) this.notes.kind = kinds.includes("cross") ? "cross" : kinds[0];
    return kinds;
  }

  draw() {
    this.body.hidden = false;
    const capture = this.current(), kinds = this.chooseKind();
    const read = readOf(capture.source, capture.asked, this.common.first);
    this.written.replaceChildren(...read, read.length ? make("br") : "", ...(capture.source && this.app.model.task === "translate" ? [make("span.muted", t("attention.written")), " ", make("bdi", capture.target || "∅")] : []));
    this.kinds.replaceChildren(...(kinds.length > 1 ? [segments({ label: t("attention.kind"), options: kinds.map((name) => [name, kindName(name)]), value: this.notes.kind, change: (kind) => {
      Object.assign(this.notes, { kind, layer: null });
      this.openKind();
    } })] : []));
    this.openKind();
  }

  openKind() {
    const { notes } = this, layers = this.layers(), story = `attention.story.${notes.kind}`;
    this.story.textContent = t(has(story) ? story : "attention.story");
    const last = layers[layers.length - 1], map = layers.find((each) => each.layer === notes.layer) ?? last;
    if (notes.head === MEAN ? map.heads === 1 : notes.head >= map.heads) notes.head = map.heads === 1 ? 0 : MEAN;
    this.buildAtlas();
    this.openHead(map, notes.head);
  }

  headsOf(map) {
    return [...Array(map.heads).keys(), ...(map.heads > 1 ? [MEAN] : [])];
  }

  buildAtlas() {
    const layers = this.layers(), widest = layers.reduce((a, b) => (a.heads >= b.heads ? a : b)), heads = this.headsOf(widest);
    const name = (head) => make("th", { scope: "col" }, head === MEAN ? t("attention.mean") : String(head + 1));
    this.atlas.replaceChildren(make("thead", make("tr", make("th", { scope: "col", class: "axis" }, t("layer")), heads.map(name))));
    const tile = this.tileSide(heads.length);
    this.atlas.append(make("tbody", layers.map((map) => make("tr", make("th", { scope: "row" }, String(map.layer + 1)), this.headsOf(map).map((head) => this.makeTile(map, head, tile))))));
    this.markTile();
    this.paintTiles();
  }

  /** As large as they all have room beside the names of layers and below those of heads, which are longer in some languages. */
  tileSide(count) {
    const names = [...this.atlas.rows[0].cells].map((cell) => Math.ceil(cell.getBoundingClientRect().width)), longest = names.at(-1);
    const room = this.atlas.parentElement.clientWidth - FRAME - names[0], even = Math.floor(room / count);
    return clamp(even < longest ? Math.floor((room - longest) / (count - 1)) : even, 30, 88);
  }

  makeTile(map, head, side) {
    const most = Math.max(map.queries.length, map.keys.length), drawn = most <= LARGEST_TILE;
    const [wide, high] = [map.keys.length, map.queries.length].map((count) => Math.max(3, Math.round(((side - 6) * count) / most)));
    const entropy = entropyOf(map, head);
    const label = `${t("attention.place", { layer: map.layer + 1, head: head === MEAN ? t("attention.mean") : head + 1 })}: ${t("attention.entropy")} ${number(entropy)}`;
    const picture = drawn ? make("canvas", { "aria-hidden": "true", style: { width: `${wide}px`, height: `${high}px` } }) : make("span.stand-in", number(entropy, 1));
    const cell = make("td", { role: "gridcell", tabindex: "-1", "aria-selected": "false", "aria-label": label, title: label, onclick: () => this.openHead(map, head) }, picture);
    Object.assign(cell, { map, head });
    cell.addEventListener("focus", () => cell.matches(":focus-visible") && this.openHead(map, head));
    return cell;
  }

  // Tiles are filled one after the other; leaving the view stops it.
  async paintTiles() {
    this.tiles?.abort();
    const { signal } = (this.tiles = new AbortController()), capture = this.current();
    const cells = [...this.atlas.querySelectorAll("td")].filter((cell) => cell.firstChild.tagName === "CANVAS");
    for (const cell of cells) {
      try {
        const values = await this.headOf(capture, cell.map, cell.head);
        if (signal.aborted) return;
        const unit = Math.max(1, Math.floor((parseFloat(cell.firstChild.style.width) * devicePixelRatio) / values[0].length));
        paint(cell.firstChild, values, { width: unit * values[0].length, height: unit * values.length });
      } catch {
        if (signal.aborted) return; // a tile without picture says enough; the large picture reports what is wrong
      }
    }
  }

  moveInAtlas(all, cell, key) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[key];
    if (!step) return null;
    const rows = [...this.atlas.tBodies[0].rows], row = clamp(rows.indexOf(cell.parentElement) + step[0], 0, rows.length - 1);
    return rows[row].cells[clamp(cell.cellIndex + step[1], 1, rows[row].cells.length - 1)];
  }

  // ---- One head

  openHead(map, head, shown = this.shown) {
    Object.assign(this.notes, { layer: map.layer, head });
    this.markTile();
    const { captures } = this;
    this.headStatus.ask(() => Promise.all(captures.map((capture) => this.headOf(capture, this.same(capture, map), head))), (values) => {
      const turned = shown !== this.shown;
      // All at once, so that a picture never mixes two heads or two texts.
      Object.assign(this, { map, head, values, shown });
      this.start = this.watched ? this.joined(this.current(), values[shown])?.rows?.[0] ?? -1 : -1;
      if (turned) this.buildAtlas();
      this.drawPair();
      this.drawHead();
    });
  }

  markTile() {
    for (const cell of this.atlas.querySelectorAll("td")) {
      const on = cell.map.layer === this.notes.layer && cell.head === this.notes.head;
      cell.setAttribute("aria-selected", String(on));
      cell.tabIndex = on ? 0 : -1;
    }
  }

  same(capture, map) {
    return capture.maps.find((each) => each.name === map.name && each.layer === map.layer);
  }

  drawHead() {
    if (!this.values) return;
    const { map, notes } = this, values = this.values[this.shown], arcs = notes.picture === "arcs";
    const head = this.head === MEAN ? t("attention.mean.heads") : t("attention.head", { head: this.head + 1 });
    this.title.textContent = t("attention.heading", { kind: kindName(map.name), layer: map.layer + 1, head });
    this.drawFacts();
    this.arcsFrame.hidden = !arcs;
    this.matrixFrame.hidden = arcs;
    if (arcs) this.arcs.show(map.queries, map.keys, values);
    else this.matrix.show(map.queries, map.keys, values);
    this.caption.replaceChildren(...(arcs ? [t("attention.lines")] : [t("attention.weight"), " ", scale("weights", "0", "1")]));
    const { start } = this;
    if (start >= 0 && !this.pinned && this.query === null) this.pin(start, null);
    else this.trace(this.query !== null && this.query < map.queries.length ? this.query : null, this.key !== null && this.key < map.keys.length ? this.key : null);
  }

  drawFacts() {
    const { map, head } = this, mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
    const figure = (list) => (head === MEAN ? mean(list) : list[head]);
    const fact = (name, value, hint) => make("div", { title: t(hint) }, make("dt", t(name)), make("dd", make("b", value)));
    this.facts.replaceChildren(
      fact("attention.entropy", number(entropyOf(map, head)), "attention.entropy.hint"),
      fact("attention.distance", number(figure(map.distance), 1), "attention.distance.hint"),
      fact("attention.separators", percent(figure(map.separators)), "attention.separators.hint"));
  }

  /** Both sentences of a pair, their words shaded by how much “it” looks at them. */
  drawPair() {
    const had = this.pair.contains(document.activeElement);
    this.pair.replaceChildren();
    if (this.captures.length < 2) return;
    const looks = this.captures.map((capture, c) => this.joined(capture, this.values[c]));
    if (looks.includes(null)) return this.pair.replaceChildren(make("p.notice", t("attention.pair.unknown", { model: this.app.model.name })));
    const rows = looks.map(({ words, weights }, c) => {
      const shaded = words.map((word, k) => make("span.shaded", { style: { "--weight": (weights[k] ?? 0).toFixed(3) } }, make("bdi", word)));
      const best = strongest(weights, 2).flatMap((k, n) => [n ? ", " : "", quoted(words[k]), ` ${number(weights[k])}`]);
      const looked = best.length ? [quoted(this.watched), " → ", ...best] : t("attention.pair.none", { word: this.watched });
      return button([make("span.pair-words", shaded), make("span.muted", looked)], () => this.turnTo(c), { class: "pair-row", "aria-pressed": String(c === this.shown) });
    });
    const { name } = this.map, { still } = this.notes;
    this.pair.replaceChildren(make("p.muted", t(`attention.pair${name === "decoder" ? ".back" : ""}`, { word: this.watched })), ...rows, name === "encoder" && still ? make("p.hint", t("attention.pair.still", still)) : "");
    if (had) rows[this.shown].focus();
    return undefined;
  }

  /** Words put together from their pieces, and how much the watched one looks at each; null where some are not known. */
  joined({ source, target, maps }, values, map = this.map) {
    const { name, queries, keys } = this.same({ maps }, map);
    // Only where a text looks at itself does the watched word look at its own sentence.
    if (queries.join() !== keys.join()) return { words: keys, weights: [] };
    const place = wordsOf(keys, name === "encoder" ? source : `${source ?? ""} ${target}`.trim()), words = [], weights = [];
    if (!place) return null;
    keys.forEach((piece, k) => (words[place[k]] = (words[place[k]] ?? "") + piece));
    // The word itself, not a piece of another that is spelled alike.
    const rows = [...values.keys()].filter((q) => words[place[q]] === this.watched);
    for (const q of rows) values[q].forEach((weight, k) => (weights[place[k]] = (weights[place[k]] ?? 0) + weight / rows.length));
    return { words, weights, rows };
  }

  turnTo(index) {
    this.text = this.area.value = this.pairTexts[index];
    this.openHead(this.same(this.captures[index], this.map), this.notes.head, index);
  }

  // ---- Tracing

  pin(query, key) {
    this.pinned = !(this.pinned && this.query === query && this.key === key);
    this.trace(query, key);
  }

  release() {
    this.pinned = false;
    this.trace(null, null);
  }

  trace(query, key) {
    Object.assign(this, { query, key });
    if (this.notes.picture === "arcs") this.arcs.mark(query, key);
    else this.matrix.mark(query, key);
    this.readout.replaceChildren(...this.read(query, key));
  }

  read(query, key) {
    const { queries, keys } = this.map, values = this.values[this.shown];
    if (query === null && key === null) return [t("attention.point")];
    if (query !== null && key !== null) return [quoted(queries[query]), ` ${t("attention.looks")} `, quoted(keys[key]), " ", make("b", number(values[query][key]))];
    const weights = query !== null ? values[query] : values.map((row) => row[key]), others = query !== null ? keys : queries;
    const best = strongest(weights, 3).flatMap((i, n) => [n ? ", " : "", quoted(others[i]), " ", make("b", number(weights[i]))]);
    return [quoted(query !== null ? queries[query] : keys[key]), ` ${t(query !== null ? "attention.most" : "attention.by")} `, ...(best.length ? best : [t("attention.nothing")])];
  }
}
