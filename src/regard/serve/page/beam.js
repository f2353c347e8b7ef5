// Beam: the search as it grew, round by round; its two settings run it again.

import { clamp, debounce, make, makeSvg, piece, rove } from "./dom.js";
import { button, empty, exports, ranked, readOf, slider, status, textField } from "./parts.js";
import { firstTry } from "./tries.js";
import { number, percent, roughly, t } from "./words.js";

export const view = { id: "beam", suits: (model) => model.task === "translate", open: (root, app) => new Beam(root, app) };

const COLUMN = 118, ROW = 34, WIDE = 92, HIGH = 26, MARGIN = 8;
const PACE = 650;

class Beam {
  constructor(root, app) {
    this.app = app;
    this.common = app.notesOf("common");
    this.notes = app.notesOf("beam", { beam: Math.min(4, app.limits.beam), alpha: 0.6 });
    this.text = (this.common.first?.source ?? this.common.text) || firstTry(app.model);
    this.later = debounce(() => this.search(), 300);
    this.build(root);
    this.search();
  }

  close() {
    this.later.cancel();
    clearInterval(this.playing);
    this.status.stop();
  }

  build(root) {
    const { app, notes } = this;
    const { box } = textField({ label: t("translate.input"), value: this.text, limit: app.limits.text, input: (text) => {
      this.text = text;
      this.later();
    } });
    const set = (key) => (value) => {
      notes[key] = value;
      this.later();
    };
    this.tree = make("div.tree", { role: "group", "aria-label": t("beam.tree") });
    this.edges = makeSvg("svg", { "aria-hidden": "true" });
    this.frame = make("div.tree-frame.panel", { hidden: true }, this.tree);
    rove(this.tree, ".node", (all, node, key) => this.moveInTree(node, key));
    this.readout = make("p.readout", { role: "status" });
    this.results = make("ol.ranked.results");
    this.status = status(this.frame, this.results);
    this.sentence = make("p.written");
    this.rounds = slider({ label: t("beam.round"), min: 1, max: 1, step: 1, value: 1, input: (round) => this.reveal(round) });
    this.play = button(t("beam.play"), () => this.replay(), "quiet");
    this.growth = make("div.growth", { hidden: true }, this.rounds.box, this.play, make("span.spring"),
      exports({ app, desk: this.status, body: () => this.request(), what: () => "beam" }));
    root.append(
      make("div.ask", box, make("div.sliders",
        slider({ label: t("beam.width"), min: 1, max: app.limits.beam, step: 1, value: notes.beam, input: set("beam"), hint: t("beam.width.hint") }).box,
        slider({ label: t("beam.alpha"), min: 0, max: 2, step: 0.1, value: notes.alpha, shown: (value) => number(value, 1), input: set("alpha"), hint: t("beam.alpha.hint") }).box),
      this.status.box),
      this.sentence, this.growth, this.readout, this.frame, this.results);
  }

  search() {
    if (!this.text.trim()) {
      this.status.stop();
      this.frame.hidden = this.growth.hidden = true;
      this.results.replaceChildren();
      this.sentence.replaceChildren();
      this.readout.replaceChildren(empty(t("beam.empty")));
      return;
    }
    const { text } = this;
    this.status.post("api/beam", this.request(), (answer) => {
      this.sentence.replaceChildren(...readOf(answer.source, text, this.common.first));
      this.draw(answer);
    });
  }

  request() {
    return { ...this.app.body(), text: this.text, ...this.notes };
  }

  draw({ rounds, results }) {
    clearInterval(this.playing);
    this.frame.hidden = this.growth.hidden = false;
    this.all = rounds;
    this.found = results;
    this.nodes = new Map();
    rounds.forEach((round, r) => [...round].sort((a, b) => b.score - a.score).forEach((node, row) => this.nodes.set(node.id, { ...node, round: r, row })));
    this.place();
    this.rounds.range.max = rounds.length;
    this.rounds.set(rounds.length);
    this.drawResults();
    this.chosen = 0;
    this.light();
    this.reveal(rounds.length);
    this.readout.textContent = t("beam.point");
  }

  place() {
    const most = Math.max(...this.all.map((round) => round.length));
    const wide = this.all.length * COLUMN + 2 * MARGIN - (COLUMN - WIDE), high = most * ROW + 2 * MARGIN;
    this.tree.style.width = `${wide}px`;
    this.tree.style.height = `${high}px`;
    this.edges.setAttribute("width", wide);
    this.edges.setAttribute("height", high);
    const list = [...this.nodes.values()];
    for (const node of list) Object.assign(node, { x: MARGIN + node.round * COLUMN, y: MARGIN + node.row * ROW });
    // What was dropped is drawn first, so that living branches lie on top.
    const drawn = [...list].sort((a, b) => Number(a.kept || a.ended) - Number(b.kept || b.ended));
    this.edges.replaceChildren(...drawn.filter((node) => this.nodes.has(node.parent)).map((node) => this.edge(node)));
    this.tree.replaceChildren(this.edges, ...list.map((node, i) => this.box(node, i)));
  }

  edge(node) {
    const parent = this.nodes.get(node.parent), x0 = parent.x + WIDE, y0 = parent.y + HIGH / 2, x1 = node.x, y1 = node.y + HIGH / 2, middle = (x0 + x1) / 2;
    node.edge = makeSvg("path", { d: `M${x0} ${y0}C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}`, class: kindOf(node) });
    return node.edge;
  }

  box(node, i) {
    const read = () => this.read(node);
    node.box = button([make("bdi", node.ended ? "■" : piece(node.token)), make("span.figure", roughly(this.chance(node)))], read, {
      class: `node ${kindOf(node)}`, tabindex: i ? "-1" : "0", style: { left: `${node.x}px`, top: `${node.y}px` }, onfocus: read, onpointerenter: read,
    });
    node.box.node = node;
    return node.box;
  }

  /** How likely the model finds this token after those before it. */
  chance(node) {
    return Math.exp(node.log_probability - (this.nodes.get(node.parent)?.log_probability ?? 0));
  }

  path(node) {
    const nodes = [];
    for (let at = node; at; at = this.nodes.get(at.parent)) nodes.unshift(at);
    return nodes;
  }

  textOf(node) {
    return this.path(node).filter((each) => !each.ended).map((each) => each.token);
  }

  sayText(node) {
    return this.textOf(node).join("") || t("beam.begin");
  }

  read(node) {
    for (const other of this.nodes.values()) {
      other.box.classList.remove("traced");
      other.edge?.classList.remove("traced");
    }
    for (const each of this.path(node)) {
      each.box.classList.add("traced");
      each.edge?.classList.add("traced");
    }
    this.readout.replaceChildren(
      make("bdi.quoted", this.sayText(node)), node.ended ? ` ${t("beam.end")}` : "",
      make("span.muted", ` ${t("beam.step", { probability: percent(this.chance(node)) })} · ${t("beam.score")} `), make("b", number(node.score)), make("span.muted", ` · ${t(`beam.${kindOf(node)}`)}`));
  }

  drawResults() {
    this.results.replaceChildren(...ranked(this.found, (i) => {
      this.chosen = i;
      this.light();
    }));
  }

  light() {
    const path = new Set(this.found[this.chosen]?.nodes ?? []);
    for (const node of this.nodes.values()) {
      node.box.classList.toggle("winning", path.has(node.id));
      node.edge?.classList.toggle("winning", path.has(node.id));
    }
    [...this.results.querySelectorAll("button")].forEach((each, i) => each.setAttribute("aria-pressed", String(i === this.chosen)));
  }

  // ---- As it grew

  reveal(round) {
    for (const node of this.nodes.values()) {
      const later = node.round >= round;
      node.box.classList.toggle("later", later);
      node.edge?.classList.toggle("later", later);
    }
    if (round < this.all.length) this.frame.scrollTo({ left: clamp(round * COLUMN - this.frame.clientWidth * 0.7, 0, 1e6) });
  }

  replay() {
    clearInterval(this.playing);
    let round = 0;
    const grow = () => {
      round += 1;
      this.rounds.set(round);
      this.reveal(round);
      if (round >= this.all.length) clearInterval(this.playing);
    };
    grow();
    this.playing = setInterval(grow, PACE);
  }

  moveInTree(box, key) {
    const { node } = box, round = [...this.nodes.values()].filter((each) => each.round === node.round).sort((a, b) => a.row - b.row);
    if (key === "ArrowUp" || key === "ArrowDown") return round[clamp(node.row + (key === "ArrowUp" ? -1 : 1), 0, round.length - 1)].box;
    if (key === "ArrowLeft") return this.nodes.get(node.parent)?.box ?? box;
    if (key !== "ArrowRight") return null;
    const children = [...this.nodes.values()].filter((each) => each.parent === node.id).sort((a, b) => b.score - a.score);
    return (children[0] ?? node).box;
  }
}

const kindOf = (node) => (node.ended ? "ended" : node.kept ? "kept" : "dropped");
