// Numbers as colours: weights from 0 to 1 in one hue, a range from least to most in the same, signed numbers in two; and a matrix one can walk through.

import { clamp, make, visible } from "./dom.js";
import { short } from "./words.js";

const STOPS = 6;
let ramps = null, inks = null;

/** The colours of the style sheet, as one whole pixel per shade. They change with light and dark. */
export function readColours() {
  const probe = make("span");
  document.body.append(probe);
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const stops = (name) => Array.from({ length: STOPS }, (_, i) => colour(`${name}-${i}`).match(/[\d.]+/g).slice(0, 3).map(Number));
  const warm = stops("warm"), cool = stops("ramp");
  inks = { plain: colour("ink"), deep: colour("on-accent") };
  probe.remove();
  ramps = { weights: blend(cool), range: blend(cool), signed: blend([...warm.reverse(), ...cool.slice(1)]) };
}

function blend(stops) {
  const bytes = new Uint8ClampedArray(256 * 4);
  for (let i = 0; i < 256; i += 1) {
    const place = (i / 255) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    for (let c = 0; c < 3; c += 1) bytes[4 * i + c] = stops[low][c] + (place - low) * (stops[low + 1][c] - stops[low][c]);
    bytes[4 * i + 3] = 255;
  }
  return new Uint32Array(bytes.buffer);
}

// Small weights matter: the square root tells 0.01 from 0.
const shadeOfWeight = (value) => Math.round(255 * Math.sqrt(clamp(value, 0, 1)));
const shadeOfSigned = (value, most) => Math.round(127.5 + 127.5 * Math.sign(value) * Math.min(1, Math.abs(value) / most) ** 0.7);

function shader(kind, values) {
  if (kind === "weights") return shadeOfWeight;
  const all = values.flat().filter(Number.isFinite), most = all.reduce((a, b) => Math.max(a, kind === "range" ? b : Math.abs(b)), 1e-9);
  if (kind === "signed") return (value) => shadeOfSigned(value, most);
  const least = all.reduce((a, b) => Math.min(a, b), most - 1e-9);
  return (value) => Math.round((255 * (value - least)) / (most - least));
}

/** Paints a matrix; a pixel that covers several cells shows the largest, so that a thin path survives shrinking. */
export function paint(canvas, values, { width, height, kind = "weights" } = {}) {
  const rows = values.length, columns = rows ? values[0].length : 0;
  if (!rows || !columns) return;
  const wide = width ?? columns, high = height ?? rows, shade = shader(kind, values), ramp = ramps[kind];
  canvas.width = wide;
  canvas.height = high;
  const image = new ImageData(wide, high), pixels = new Uint32Array(image.data.buffer);
  for (let y = 0, at = 0; y < high; y += 1) {
    const top = Math.floor((y * rows) / high), bottom = Math.max(top + 1, Math.floor(((y + 1) * rows) / high));
    for (let x = 0; x < wide; x += 1, at += 1) {
      const left = Math.floor((x * columns) / wide), right = Math.max(left + 1, Math.floor(((x + 1) * columns) / wide));
      let most = values[top][left];
      for (let r = top; r < bottom; r += 1) for (let c = left; c < right; c += 1) if (Math.abs(values[r][c]) > Math.abs(most)) most = values[r][c];
      // What is masked has no number; it stays paper.
      pixels[at] = Number.isFinite(most) ? ramp[shade(most)] : 0;
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const ruler = document.createElement("canvas").getContext("2d");
function widest(labels, size) {
  ruler.font = `500 ${size}px ${getComputedStyle(document.body).fontFamily}`;
  return labels.reduce((most, label) => Math.max(most, ruler.measureText(visible(label)).width), 0);
}

/**
 * A matrix with labels. `point` hears which cell the reader is at, or (null, null); `pick` which one was chosen. A label
 * stands for its whole row or column.
 */
export class Matrix {
  constructor({ label, room, point = () => {}, pick = () => {}, kind = "weights", numbers = false, lowest = 18 }) {
    Object.assign(this, { room, point, pick, kind, numbers, lowest, at: [null, null] });
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.figures = make("canvas", { "aria-hidden": "true", class: "figures" });
    this.rowBand = make("div.band", { hidden: true });
    this.columnBand = make("div.band", { hidden: true });
    this.followed = make("div.band.followed", { hidden: true });
    this.cursor = make("div.cursor", { hidden: true });
    this.mesh = make("div.mesh");
    this.cells = make("div.cells", { role: "application", tabindex: "0", "aria-label": label },
      this.canvas, this.mesh, this.figures, this.rowBand, this.columnBand, this.followed, this.cursor);
    this.rowLabels = make("div.row-labels", { "aria-hidden": "true" });
    this.columnLabels = make("div.column-labels", { "aria-hidden": "true" });
    this.element = make("div.matrix", make("div.corner"), this.columnLabels, this.rowLabels, this.cells);
    this.listen();
  }

  show(rows, columns, values) {
    Object.assign(this, { rows, columns, values });
    this.layOut();
    paint(this.canvas, values, { kind: this.kind });
    this.writeNumbers();
    this.mark(null, null);
  }

  layOut() {
    const { rows, columns, values, element } = this, count = values[0].length;
    const size = 13, named = columns !== null;
    const side = rows ? Math.min(150, Math.ceil(widest(rows, size)) + 14) : 0;
    const lean = named ? Math.min(150, widest(columns, size)) : 0;
    // Labels lean out to the right of the last column.
    const out = named ? Math.ceil(lean * 0.71) + 8 : 0, spare = Math.max(0, (this.room() || 600) - side - out);
    // A matrix of weights has square cells; one with numbers in them has room for those, and may be narrow instead.
    this.pitch = this.numbers ? clamp(Math.floor(spare / count), 5, 54) : clamp(Math.floor(spare / count), 12, 34);
    this.high = this.numbers ? clamp(this.pitch, this.lowest, 28) : this.pitch;
    const upright = this.pitch < 17;
    const top = named ? Math.ceil(upright ? lean + 10 : lean * 0.71 + 26) : 4;
    const style = element.style;
    style.setProperty("grid-template-columns", `${side}px ${count * this.pitch}px ${upright ? 0 : out}px`);
    style.setProperty("grid-template-rows", `${top}px ${values.length * this.high}px`);
    style.setProperty("--pitch", `${this.pitch}px`);
    style.setProperty("--high", `${this.high}px`);
    style.setProperty("--label-size", `${Math.min(size, Math.max(11, this.high))}px`);
    element.classList.toggle("narrow", this.pitch < 16);
    const label = (text) => make("span", { dir: "auto", title: text }, text === "" ? "" : visible(text));
    // Where rows are lower than letters, not every row has a label.
    const step = Math.ceil(12 / this.high);
    this.rowLabels.replaceChildren(...(rows ?? []).map((text, r) => label(r % step ? "" : text)));
    this.columnLabels.replaceChildren(...(columns ?? []).map(label));
    [...this.rowLabels.children].forEach((each, r) => (each.style.top = `${(r + 0.5) * this.high}px`));
    [...this.columnLabels.children].forEach((each, c) => {
      each.style.left = `${(c + 0.5) * this.pitch}px`;
      each.style.transform = `rotate(${upright ? -90 : -45}deg)`;
    });
  }

  // Where a cell is large enough, its number stands in it.
  writeNumbers() {
    const { figures, values, pitch, high } = this, fits = this.numbers && pitch >= 40;
    figures.hidden = !fits;
    if (!fits) return;
    const scale = devicePixelRatio, shade = shader(this.kind, values), pen = figures.getContext("2d");
    figures.width = values[0].length * pitch * scale;
    figures.height = values.length * high * scale;
    pen.scale(scale, scale);
    pen.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    values.forEach((row, r) => row.forEach((value, c) => {
      if (!Number.isFinite(value)) return;
      const depth = this.kind === "signed" ? Math.abs(shade(value) - 127.5) / 127.5 : shade(value) / 255;
      pen.fillStyle = depth > 0.55 ? inks.deep : inks.plain;
      pen.fillText(short(value), (c + 0.5) * pitch, (r + 0.5) * high);
    }));
  }

  /** Marks a row, a column, or the cell where they meet. */
  mark(row, column) {
    this.at = [row, column];
    const { pitch, high, values } = this, wide = values[0].length * pitch, tall = values.length * high;
    place(this.rowBand, row !== null, { left: 0, top: row * high, width: wide, height: high });
    place(this.columnBand, column !== null, { left: column * pitch, top: 0, width: pitch, height: tall });
    place(this.cursor, row !== null && column !== null, { left: column * pitch, top: row * high, width: pitch, height: high });
    [...this.rowLabels.children].forEach((label, r) => label.classList.toggle("on", r === row));
    [...this.columnLabels.children].forEach((label, c) => label.classList.toggle("on", c === column));
  }

  /** A row that stays marked: the token the reader follows. */
  follow(row) {
    const { pitch, high, values } = this;
    place(this.followed, row !== null && row >= 0 && row < values.length, { left: 0, top: row * high, width: values[0].length * pitch, height: high });
    [...this.rowLabels.children].forEach((label, r) => label.classList.toggle("followed", r === row));
  }

  under(event) {
    const box = this.cells.getBoundingClientRect();
    return [
      clamp(Math.floor((event.clientY - box.top) / this.high), 0, this.values.length - 1),
      clamp(Math.floor((event.clientX - box.left) / this.pitch), 0, this.values[0].length - 1),
    ];
  }

  listen() {
    this.cells.addEventListener("pointermove", (event) => this.point(...this.under(event)));
    this.cells.addEventListener("click", (event) => this.pick(...this.under(event)));
    this.cells.addEventListener("keydown", (event) => this.move(event));
    for (const [list, pair] of [[this.rowLabels, (i) => [i, null]], [this.columnLabels, (i) => [null, i]]]) {
      const at = (event) => [...list.children].indexOf(event.target);
      list.addEventListener("pointerover", (event) => at(event) >= 0 && this.point(...pair(at(event))));
      list.addEventListener("click", (event) => at(event) >= 0 && this.pick(...pair(at(event))));
    }
    this.element.addEventListener("pointerleave", () => this.point(null, null));
    this.cells.addEventListener("focusout", () => this.point(null, null));
  }

  move(event) {
    if (event.key === "Enter" && this.at[0] !== null) this.pick(...this.at);
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const fresh = this.at[0] === null || this.at[1] === null, { values } = this;
    this.point(
      clamp((this.at[0] ?? 0) + (fresh ? 0 : step[0]), 0, values.length - 1),
      clamp((this.at[1] ?? 0) + (fresh ? 0 : step[1]), 0, values[0].length - 1),
    );
    this.cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

function place(element, shown, box) {
  element.hidden = !shown;
  if (shown) for (const [side, value] of Object.entries(box)) element.style[side] = `${value}px`;
}

/** The key to the colours. */
export function scale(kind, low, high) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const shades = Array.from({ length: 128 }, (_, i) => (kind === "weights" ? (i / 127) ** 2 : Math.sign(i - 63.5) * (Math.abs(i - 63.5) / 63.5) ** (1 / 0.7)));
  paint(canvas, [shades], { kind });
  return make("span.scale", low, canvas, high);
}
