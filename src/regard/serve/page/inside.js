// Inside: the matrices of a model and their sizes, its wiring, its positions, its neighbours, and how it learned.

import { get } from "./api.js";
import { drawCard } from "./card.js";
import { debounce, make, neighbour, rove, uniqueId, visible } from "./dom.js";
import { Matrix } from "./heat.js";
import { bars, copyButton, details, kindName, slider, status } from "./parts.js";
import { currentLanguage, number, percent, short, t, whole } from "./words.js";

export const view = { id: "inside", suits: () => true, open: (root, app) => new Inside(root, app) };

const UNITS = ["B", "kB", "MB", "GB", "TB"];

function bytes(count) {
  const power = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, count)) / 3)));
  return `${number(count / 1000 ** power, power ? 1 : 0)} ${UNITS[power]}`;
}

/** Matrices by the part they belong to: the layers of a stack, and what stands beside them. */
function groups(matrices) {
  const found = new Map();
  for (const matrix of matrices) {
    const parts = matrix.name.split("."), index = parts.findIndex((part) => /^\d+$/.test(part));
    const group = parts.slice(0, index >= 0 ? index + 1 : 1).join(".");
    if (!found.has(group)) found.set(group, []);
    found.get(group).push({ ...matrix, short: parts.slice(index >= 0 ? index + 1 : 0).join(".") });
  }
  return [...found].map(([name, list]) => ({ name, list, parameters: list.reduce((sum, each) => sum + each.parameters, 0) }));
}

class Inside {
  constructor(root, app) {
    this.app = app;
    this.notes = app.notesOf("inside", { length: 32, dimensions: 32, word: null });
    this.body = make("div.inside-body");
    this.status = status(this.body);
    this.placesStatus = status(make("div"));
    this.nearStatus = status(make("div"));
    root.append(this.status.box, this.body);
    this.addresses = [];
    this.laterPlaces = debounce(() => this.lookAtPositions(), 250);
    this.laterNear = debounce(() => this.lookNear(), 350);
    this.redraw = debounce(() => this.drawPositions(), 60);
    document.addEventListener("colours", this.redraw);
    this.observer = new ResizeObserver(this.redraw);
    this.status.ask((signal) => get(`api/models/${encodeURIComponent(app.model.id)}/inside?tongue=${currentLanguage()}`, signal), (answer) => this.draw(answer));
  }

  close() {
    for (const later of [this.laterPlaces, this.laterNear, this.redraw]) later.cancel();
    for (const one of [this.status, this.placesStatus, this.nearStatus]) one.stop();
    this.observer.disconnect();
    document.removeEventListener("colours", this.redraw);
    this.addresses.forEach((url) => URL.revokeObjectURL(url));
  }

  draw({ inspection, wiring, tall_wiring, curves, tall_curves, card, recipe, word }) {
    this.notes.word ??= word;
    const section = (name, ...children) => {
      const id = uniqueId("heading");
      return make("section", { class: `panel ${name}`, "aria-labelledby": id }, make("h2", { id }, t(`inside.${name}`)), make("p.muted", t(`inside.${name}.lead`)), ...children);
    };
    // A model that gives labels has no words of its own to compare.
    const writes = !this.app.model.labels.length;
    this.body.replaceChildren(
      this.figures(inspection),
      section("matrices", this.matrices(inspection)),
      section("wiring", wiring ? this.picture(wiring, tall_wiring, t("inside.wiring")) : make("p.empty", t("inside.none"))),
      ...(writes ? [section("neighbours", this.neighbours()), section("positions", this.positions())] : []),
      section("curves", curves ? this.picture(curves, tall_curves, t("inside.curves")) : make("p.empty", t("inside.none"))),
      make("div.more",
        card ? details(t("inside.card"), drawCard(card)) : null,
        details(t("inside.recipe"), [make("pre", { tabindex: "0", "aria-label": t("inside.recipe") }, recipe), copyButton(() => recipe)])));
    if (!writes) return;
    this.lookAtPositions();
    this.lookNear();
  }

  figures({ kind, vocabulary, parameters, memory, flops }) {
    const { attention = [], context } = this.app.model, shapeOf = ({ layers, heads }) => `${layers} × ${heads}`, shapes = [...new Set(attention.map(shapeOf))];
    const fact = (value, name) => make("div", make("dt", name), make("dd", value));
    return make("dl.big-facts",
      fact(whole(parameters), t("inside.parameters")), fact(kind, t("inside.kind")), fact(whole(vocabulary), t("inside.vocabulary")),
      ...shapes.map((shape) => fact(shape, t("inside.heads", { name: attention.filter((one) => shapeOf(one) === shape).map((one) => kindName(one.name)).join(", ") }))),
      ...(context ? [fact(whole(context), t("inside.context"))] : []),
      ...(memory?.weights ? [fact(bytes(memory.weights), t("inside.weights"))] : []),
      ...(flops?.decoding_token ? [fact(compact(flops.decoding_token), t("inside.flops"))] : []));
  }

  matrices({ matrices, parameters }) {
    const parts = groups(matrices), most = Math.max(...parts.map((part) => part.parameters));
    return make("div.parts", parts.map((part) => details([
      make("span.part-name", part.name), make("span.part-bar", { style: { "--share": (part.parameters / most).toFixed(4) } }),
      make("span.figure", whole(part.parameters)), make("span.figure.share", percent(part.parameters / parameters)),
    ], make("table.matrix-table",
      make("thead", make("tr", make("th", { scope: "col" }, t("inside.matrix")), make("th", { scope: "col" }, t("inside.shape")), make("th", { scope: "col", class: "figure" }, t("inside.parameters")))),
      make("tbody", part.list.map((each) => make("tr", make("th", { scope: "row" }, each.short || each.name), make("td", each.shape.join(" × ")), make("td.figure", whole(each.parameters)))))))));
  }

  // An image cannot run scripts or load anything, whatever a model folder holds.
  picture(svg, tall, label) {
    const [wide, narrow] = [svg, tall].map((each) => URL.createObjectURL(new Blob([each], { type: "image/svg+xml" })));
    this.addresses.push(wide, narrow);
    return make("picture", make("source", { media: "(max-width: 40rem)", srcset: narrow }), make("img", { src: wide, alt: label, class: "drawing" }));
  }

  // ---- Positions

  positions() {
    const { notes } = this, most = Math.min(64, this.app.model.context ?? 64);
    notes.length = Math.min(notes.length, most);
    const set = (key) => (value) => {
      notes[key] = value;
      this.laterPlaces();
    };
    this.places = make("div.places");
    this.placeNote = make("p.readout", { role: "status" });
    this.observer.observe(this.places);
    return make("div", make("div.sliders",
      slider({ label: t("inside.length"), min: 2, max: most, step: 1, value: notes.length, input: set("length") }).box,
      slider({ label: t("inside.dimensions"), min: 2, max: 64, step: 2, value: notes.dimensions, input: set("dimensions") }).box), this.placesStatus.box, (this.told = make("p")), this.places, this.placeNote);
  }

  lookAtPositions() {
    const { length, dimensions } = this.notes;
    this.placesStatus.post("api/positions", { model: this.app.model.id, length, dimensions, tongue: currentLanguage() }, (answer) => {
      this.where = answer;
      this.told.textContent = answer.sentence;
      this.drawPositions();
    });
  }

  drawPositions() {
    if (!this.where?.values?.length) return;
    const half = () => (this.places.clientWidth > 620 ? this.places.clientWidth / 2 - 16 : this.places.clientWidth);
    const { rows, columns, first } = this.where;
    const one = (name, kind, values) => {
      const point = (r, c) => {
        matrix.mark(r, c);
        if (r !== null && c !== null) this.placeNote.replaceChildren(`${t("inside.at", { position: r + first, other: kind === "range" ? c + first : c })} `, make("b", short(values[r][c])));
      };
      const matrix = new Matrix({ label: name, room: half, kind, numbers: true, lowest: 9, point });
      return [matrix, values, make("figure", make("figcaption", name), make("div.scroller", matrix.element))];
    };
    const both = [one(t("inside.values", { rows: t(`inside.${rows}`), columns: t(`inside.${columns}`) }), "signed", this.where.values), one(t("inside.similarity"), "range", this.where.similarity)];
    this.places.replaceChildren(...both.map(([, , figure]) => figure));
    for (const [matrix, values] of both) matrix.show(values.map((_, i) => String(i + first)), null, values);
  }

  // ---- Neighbours

  neighbours() {
    const { notes } = this, id = uniqueId("word");
    const field = this.wordField = make("input", { id, type: "text", dir: "auto", value: notes.word, maxlength: 100, autocapitalize: "off", spellcheck: "false", oninput: () => {
      notes.word = field.value;
      this.laterNear();
    } });
    this.near = make("ol.bars");
    rove(this.near, "button", neighbour);
    return make("div", make("div.field", make("label", { for: id }, t("inside.word")), field), this.nearStatus.box, this.near);
  }

  lookNear() {
    if (!this.notes.word.trim()) {
      this.nearStatus.stop();
      this.near.replaceChildren();
      return;
    }
    this.nearStatus.post("api/neighbours", { model: this.app.model.id, text: this.notes.word, count: 12 }, ({ tokens }) => {
      this.near.replaceChildren(...bars(tokens.map(({ text, similarity }) => ({ text: visible(text), share: similarity, figure: number(similarity) })), (i) => {
        this.notes.word = this.wordField.value = tokens[i].text;
        this.lookNear();
      }));
    });
  }
}

function compact(count) {
  return count.toLocaleString(document.documentElement.lang, { notation: "compact", maximumFractionDigits: 1 });
}
