// Draws the page from what attention_html embedded. Tokens enter the document as text nodes only, never as markup.

const $ = (id) => document.getElementById(id);
const page = JSON.parse($("page").textContent);
const maps = page.maps.map((map, index) => ({
  ...map, index, queries: page.labels[map.queries], keys: page.labels[map.keys],
}));
const kinds = [...new Set(maps.map((map) => map.name))];
const layersOf = (kind) => maps.filter((map) => map.name === kind).sort((a, b) => a.layer - b.layer);

const STORIES = {
  encoder: "Each row is a token of the source. The stronger a cell’s colour, the more that token draws on the one at the top of the column.",
  decoder: "Each row is a step. It may look only at what has come so far, so the upper right stays empty.",
  cross: "Each row is a token being written. The stronger a cell’s colour, the more it looks at that token of the source.",
};
const OTHER_STORY = "Each row is a token that looks. The stronger a cell’s colour, the more it looks at the one at the top of the column.";
const FAINTEST_LINE = 0.03;

// What is shown: a map, one of its heads (heads.length stands for their mean), and the traced query and/or key.
const state = { map: null, head: 0, weights: null, query: null, key: null, pinned: false };

// ── Weights ──────────────────────────────────────────────────────────────────

const inflated = new Map();

async function inflate(map) {
  const packed = atob($(`weights-${map.index}`).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const codes = new Uint16Array(planes.length / 2);
  for (let i = 0; i < codes.length; i++) codes[i] = planes[i] | (planes[codes.length + i] << 8);
  return codes;
}

function codesOf(map) {
  if (!inflated.has(map)) inflated.set(map, inflate(map));
  return inflated.get(map);
}

async function weightsOf(map, head) {
  const codes = await codesOf(map);
  const cells = map.queries.length * map.keys.length;
  const weights = new Float32Array(cells);
  const [first, last] = head < map.heads.length ? [head, head + 1] : [0, map.heads.length];
  for (let h = first; h < last; h++) for (let i = 0; i < cells; i++) weights[i] += codes[h * cells + i];
  const unit = 65535 * (last - first);
  for (let i = 0; i < cells; i++) weights[i] /= unit;
  return weights;
}

const rowOf = (query) => state.weights.subarray(query * state.map.keys.length, (query + 1) * state.map.keys.length);
const columnOf = (key) => state.map.queries.map((_, query) => state.weights[query * state.map.keys.length + key]);

function strongest(weights, count) {
  return [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, count).filter((i) => weights[i] >= 0.005);
}

// ── Colour ───────────────────────────────────────────────────────────────────

let ramp = null;

function readRamp() {
  const style = getComputedStyle(document.documentElement);
  const stops = [0, 1, 2, 3, 4, 5].map((i) => {
    const hex = parseInt(style.getPropertyValue(`--ramp-${i}`).trim().slice(1), 16);
    return [hex >> 16, (hex >> 8) & 255, hex & 255];
  });
  const bytes = new Uint8ClampedArray(256 * 4);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    for (let c = 0; c < 3; c++) bytes[4 * i + c] = stops[low][c] + (place - low) * (stops[low + 1][c] - stops[low][c]);
    bytes[4 * i + 3] = 255;
  }
  ramp = new Uint32Array(bytes.buffer); // one whole pixel per shade
}

// One pixel of the canvas shows the largest weight it covers, so that a thin bright path survives shrinking.
function paint(canvas, weights, rows, columns, width, height) {
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer);
  for (let y = 0, at = 0; y < height; y++) {
    const top = Math.floor((y * rows) / height), bottom = Math.max(top + 1, Math.floor(((y + 1) * rows) / height));
    for (let x = 0; x < width; x++, at++) {
      const left = Math.floor((x * columns) / width), right = Math.max(left + 1, Math.floor(((x + 1) * columns) / width));
      let most = 0;
      for (let r = top; r < bottom; r++) for (let c = left; c < right; c++) most = Math.max(most, weights[r * columns + c]);
      pixels[at] = ramp[Math.round(255 * Math.sqrt(Math.min(1, most)))];
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function paintScale() {
  const shades = Float32Array.from({ length: 256 }, (_, i) => (i / 255) ** 2);
  paint($("scale"), shades, 1, 256, 256, 1);
}

// ── Small tools ──────────────────────────────────────────────────────────────

function make(tag, text = "", attributes = {}) {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const shown = (label) => (label.trim() === "" ? "␣" : label);
const quoted = (label) => ["«", make("bdi", shown(label)), "»"];
const number = (weight) => weight.toFixed(2);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const labelled = (label) => make("span", shown(label), { dir: "auto", title: label });

// Long work stops for breath now and then, so that keys and pointer are answered in between.
let lastBreath = performance.now();

async function breath() {
  if (performance.now() - lastBreath < 15) return;
  await new Promise((resume) => setTimeout(resume));
  lastBreath = performance.now();
}

const ruler = document.createElement("canvas").getContext("2d");

function widths(labels, size) {
  ruler.font = `600 ${size}px ${getComputedStyle(document.body).fontFamily}`;
  return labels.map((label) => Math.ceil(ruler.measureText(shown(label)).width) + 1);
}

// ── All layers and heads ─────────────────────────────────────────────────────

const tileId = (map, head) => `tile-${map.index}-${head}`;
const headName = (map, head) => (head < map.heads.length ? `head\u00a0${head + 1}` : "mean of heads");
const summaryOf = (map, head) => (head < map.heads.length ? map.heads[head] : map.mean);
// With one head its mean would be the same picture twice.
const tilesOf = (map) => (map.heads.length > 1 ? map.heads.length + 1 : 1);

function buildKinds() {
  for (const kind of kinds) {
    const label = make("label");
    const input = make("input", "", { type: "radio", name: "kind", value: kind });
    input.addEventListener("change", () => openKind(kind));
    label.append(input, make("span", kind.charAt(0).toUpperCase() + kind.slice(1)));
    $("kinds").append(label);
  }
  $("kinds").hidden = kinds.length < 2;
}

function buildAtlas(layers) {
  const most = layers.reduce((a, b) => (a.heads.length >= b.heads.length ? a : b));
  // Tiles shrink to fit the column, but stay large enough to see and to touch.
  const gap = 10, first = 40, room = $("atlas").parentElement.clientWidth - 8;
  const tile = clamp(Math.floor((room - first - gap) / tilesOf(most)), 26, 88), side = tile - 6;
  const columns = [first, ...Array(most.heads.length).fill(tile), ...(tilesOf(most) > 1 ? [tile + gap] : [])];
  const head = make("thead"), body = make("tbody"), axis = make("tr"), names = make("tr");
  axis.append(make("td"), make("th", "Head", { class: "axis", colspan: most.heads.length, scope: "colgroup" }));
  names.append(make("th", "Layer", { class: "axis", scope: "col" }));
  for (let h = 0; h < tilesOf(most); h++) {
    const mean = h === most.heads.length;
    names.append(make("th", mean ? "mean" : String(h + 1), { scope: "col", class: mean ? "mean" : "" }));
  }
  head.append(axis, names);
  for (const map of layers) {
    const row = make("tr");
    row.append(make("th", String(map.layer + 1), { scope: "row" }));
    for (let h = 0; h < tilesOf(map); h++) row.append(makeTile(map, h, side));
    body.append(row);
  }
  const group = make("colgroup");
  group.append(...columns.map((width) => make("col", "", { width })));
  $("atlas").style.width = `${columns.reduce((sum, width) => sum + width)}px`;
  $("atlas").replaceChildren(group, head, body);
  paintLayers(layers, side);
}

// Whole device pixels per word keep small tiles crisp; long sentences are pooled into what fits.
function tileSize(map, side) {
  const rows = map.queries.length, columns = map.keys.length, most = Math.floor(side * devicePixelRatio);
  const unit = Math.floor(most / Math.max(rows, columns));
  if (unit) return [unit * columns, unit * rows];
  return [columns, rows].map((count) => Math.max(1, Math.round((most * count) / Math.max(rows, columns))));
}

function makeTile(map, head, side) {
  const { entropy, distance } = summaryOf(map, head);
  const numbers = `entropy ${number(entropy)} nats, distance ${number(distance)} positions`;
  const tile = make("td", "", {
    role: "gridcell", id: tileId(map, head), tabindex: "-1", "aria-selected": "false", "aria-label": `Layer ${map.layer + 1}, ${headName(map, head)}: ${numbers}`,
    class: head === map.heads.length ? "mean" : "",
  });
  const canvas = make("canvas", "", { "aria-hidden": "true" }), [width, height] = tileSize(map, side);
  canvas.style.width = `${width / devicePixelRatio}px`;
  canvas.style.height = `${height / devicePixelRatio}px`;
  tile.append(canvas);
  tile.addEventListener("click", () => openHead(map, head));
  return tile;
}

async function paintLayers(layers, side) {
  for (const map of layers) {
    for (let head = 0; head < tilesOf(map); head++) {
      const canvas = $(tileId(map, head))?.firstChild;
      if (!canvas) return; // the reader has turned to another kind meanwhile
      paint(canvas, await weightsOf(map, head), map.queries.length, map.keys.length, ...tileSize(map, side));
      await breath();
    }
  }
}

function moveInAtlas(event) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const layers = layersOf(state.map.name);
  const map = layers[clamp(layers.indexOf(state.map) + step[0], 0, layers.length - 1)];
  const head = clamp(state.head + step[1], 0, tilesOf(map) - 1);
  const focused = $("atlas").contains(document.activeElement);
  openHead(map, head);
  if (focused) $(tileId(map, head)).focus();
}

// ── Opening a head ───────────────────────────────────────────────────────────

function openKind(kind, map = layersOf(kind).at(-1), head = tilesOf(map) - 1) {
  $("story").textContent = Object.hasOwn(STORIES, kind) ? STORIES[kind] : OTHER_STORY;
  buildAtlas(layersOf(kind));
  Object.assign(state, { query: null, key: null, pinned: false });
  openHead(map, head);
}

async function openHead(map, head) {
  if (state.map) {
    const before = $(tileId(state.map, state.head));
    before?.setAttribute("aria-selected", "false");
    before?.setAttribute("tabindex", "-1");
  }
  Object.assign(state, { map, head });
  $(tileId(map, head)).setAttribute("aria-selected", "true");
  $(tileId(map, head)).setAttribute("tabindex", "0");
  const weights = await weightsOf(map, head);
  // Only the newest choice is drawn, however long the earlier ones took to unpack.
  if (state.map !== map || state.head !== head) return;
  state.weights = weights;
  describe(map, head);
  layOut();
  draw();
}

function describe(map, head) {
  const kind = map.name.charAt(0).toUpperCase() + map.name.slice(1);
  const name = `${kind} attention, layer\u00a0${map.layer + 1}, ${headName(map, head)}`;
  const { entropy, distance, separators } = summaryOf(map, head);
  $("chosen").textContent = name;
  $("entropy").textContent = number(entropy);
  $("entropy-limit").textContent = `of at most ${number(Math.log(map.keys.length))} nats`;
  $("distance").textContent = number(distance);
  $("separators").textContent = `${Math.round(100 * separators)} %`;
  $("cells").setAttribute("aria-label", `Matrix of ${name}. Arrow keys move from cell to cell.`);
  if ($("in-words").open) writeInWords();
}

function writeInWords() {
  const rows = state.map.queries.map((label, query) => {
    const row = make("tr"), word = make("th", "", { scope: "row" }), seen = make("td"), weights = rowOf(query);
    word.append(make("bdi", shown(label)));
    for (const key of strongest(weights, 3)) {
      const one = make("span");
      one.append(make("bdi", shown(state.map.keys[key])), " ", make("i", number(weights[key])));
      seen.append(one);
    }
    row.append(word, seen);
    return row;
  });
  $("sentences-in-words").replaceChildren(...rows);
}

// ── Layout of the two pictures ───────────────────────────────────────────────

let pitch = 0, linePitch = 0, laidOut = {};

function layOut() {
  const { queries, keys } = state.map, room = $("pictures").clientWidth;
  if (laidOut.queries === queries && laidOut.keys === keys && laidOut.room === room) return;
  laidOut = { queries, keys, room };
  const beside = room >= 760 && Math.max(queries.length, keys.length) <= 26;
  $("pictures").classList.toggle("beside", beside);
  layOutMatrix(beside ? room * 0.56 : room);
  layOutLines(beside);
}

function draw() {
  const { queries, keys } = state.map;
  // One pixel per word pair, enlarged by the browser: 512 words cost no more memory than a small photograph.
  paint($("matrix-canvas"), state.weights, queries.length, keys.length, keys.length, queries.length);
  drawLines($("all-lines"), "--tint", 0, (line) => {
    for (let q = 0; q < queries.length; q++) {
      rowOf(q).forEach((weight, k) => weight >= FAINTEST_LINE && line(q, k, weight));
    }
  });
  trace();
}

// Leaning column labels need 18 px each; where cells are narrower the labels are smaller and stand upright.
function measure(room) {
  const { queries, keys } = state.map, limit = Math.round(clamp(room * 0.3, 84, 180));
  const fit = (spare) => clamp(Math.floor((room - spare) / keys.length), 12, 34);
  const longest = (labels, size) => Math.min(limit, Math.max(...widths(labels, size)));
  const rows = longest(queries, 13) + 12, lean = widths(keys, 13).map((width) => Math.min(limit, width) * Math.SQRT1_2 + 14);
  const overhang = (side) => Math.max(0, ...lean.map((width, k) => (k + 0.5 - keys.length) * side + width));
  const side = fit(rows + overhang(fit(rows)));
  if (side >= 18) return { side, rows, columns: Math.max(...lean), overhang: overhang(side), size: 13, turn: -45, limit };
  const narrow = longest(queries, 11) + 12;
  return { side: fit(narrow), rows: narrow, columns: longest(keys, 11) + 10, overhang: 0, size: 11, turn: -90, limit };
}

function layOutMatrix(room) {
  const { queries, keys } = state.map, { side, rows, columns, overhang, size, turn, limit } = measure(room);
  pitch = side;
  const style = $("matrix").style;
  style.gridTemplateColumns = `${rows}px ${keys.length * pitch}px ${overhang}px`;
  style.gridTemplateRows = `${columns}px ${queries.length * pitch}px`;
  style.setProperty("--row-labels", `${rows}px`);
  style.setProperty("--column-labels", `${columns}px`);
  style.setProperty("--column-label-limit", `${limit}px`);
  style.setProperty("--label-size", `${size}px`);
  style.setProperty("--pitch", `${pitch}px`);
  $("rows").replaceChildren(...queries.map(labelled));
  $("columns").replaceChildren(...keys.map(labelled));
  [...$("rows").children].forEach((label, q) => (label.style.top = `${(q + 0.5) * pitch}px`));
  [...$("columns").children].forEach((label, k) => {
    label.style.left = `${(k + 0.5) * pitch}px`;
    label.style.transform = `rotate(${turn}deg)`;
  });
}

function layOutLines(beside) {
  const { queries, keys } = state.map, long = Math.max(queries.length, keys.length);
  // Side by side, the words stand level with the rows of the matrix.
  const level = beside && pitch >= 18;
  linePitch = level ? pitch : long <= 30 ? 26 : 18;
  const style = $("lines").style;
  style.setProperty("--line-head", level ? getComputedStyle($("matrix")).getPropertyValue("--column-labels") : "1.75rem");
  style.setProperty("--line-pitch", `${linePitch}px`);
  style.setProperty("--line-size", linePitch >= 22 ? "14px" : "12px");
  fillWords($("lookers"), queries, "query");
  fillWords($("looked"), keys, "key");
  $("threads").style.height = `${long * linePitch}px`;
}

function fillWords(list, labels, side) {
  list.replaceChildren(...labels.map((label, i) => {
    const word = make("div", "", { role: "option", tabindex: i ? "-1" : "0", "aria-selected": "false" });
    word.append(labelled(label));
    word.dataset.side = side;
    word.dataset.place = i;
    return word;
  }));
}

function drawLines(canvas, color, firmness, each) {
  const width = $("threads").clientWidth, height = $("threads").clientHeight;
  // Browsers refuse canvases beyond 16384 pixels a side; a very long list is drawn a little coarser instead.
  const scale = Math.min(devicePixelRatio, 16000 / height);
  const wide = Math.round(width * scale), high = Math.round(height * scale), pen = canvas.getContext("2d");
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue(color);
  pen.lineCap = "round";
  each((query, key, weight) => {
    const from = (query + 0.5) * linePitch, to = (key + 0.5) * linePitch;
    pen.globalAlpha = clamp(0.06 + firmness + 0.84 * weight, 0, 1);
    pen.lineWidth = 0.75 + firmness + 4.25 * weight;
    pen.beginPath();
    pen.moveTo(3, from);
    pen.bezierCurveTo(width * 0.45, from, width * 0.55, to, width - 3, to);
    pen.stroke();
  });
}

// ── Tracing a word or a cell ─────────────────────────────────────────────────

function follow(query, key) {
  if (state.query === query && state.key === key) return;
  Object.assign(state, { query, key });
  trace();
}

function hover(query, key) {
  if (!state.pinned) follow(query, key);
}

function pin(query, key) {
  state.pinned = !(state.pinned && state.query === query && state.key === key);
  follow(query, key);
}

function release() {
  state.pinned = false;
  follow(null, null);
}

function trace() {
  const { query, key, map } = state;
  if (query !== null && query >= map.queries.length) return release();
  if (key !== null && key >= map.keys.length) return release();
  traceMatrix(query, key);
  traceLines(query, key);
  $("readout").replaceChildren(...readout(query, key));
}

function place(element, visible, box) {
  element.hidden = !visible;
  if (visible) for (const [side, value] of Object.entries(box)) element.style[side] = `${value}px`;
}

function traceMatrix(query, key) {
  const wide = state.map.keys.length * pitch, high = state.map.queries.length * pitch;
  place($("row-band"), query !== null, { left: 0, top: query * pitch, width: wide + 1, height: pitch + 1 });
  place($("column-band"), key !== null, { left: key * pitch, top: 0, width: pitch + 1, height: high + 1 });
  place($("cursor"), query !== null && key !== null, { left: key * pitch, top: query * pitch, width: pitch + 3, height: pitch + 3 });
  [...$("rows").children].forEach((label, q) => label.classList.toggle("on", q === query));
  [...$("columns").children].forEach((label, k) => label.classList.toggle("on", k === key));
}

function traceLines(query, key) {
  const seen = query === null ? null : rowOf(query), seers = query === null && key !== null ? columnOf(key) : null;
  markWords($("looked"), seen, key);
  markWords($("lookers"), seers, query);
  $("threads").classList.toggle("tracing", query !== null || key !== null);
  drawLines($("traced-lines"), "--mark", 0.25, (line) => {
    seen?.forEach((weight, k) => weight >= 0.005 && (key === null || k === key) && line(query, k, weight));
    seers?.forEach((weight, q) => weight >= 0.005 && line(q, key, weight));
  });
}

function markWords(list, weights, chosen) {
  [...list.children].forEach((word, i) => {
    const weight = weights && weights[i] >= 0.005 ? weights[i].toFixed(3) : "";
    // Most words stay as they are; leaving those alone keeps pointing quick in long sentences.
    if (word.dataset.exact !== weight) {
      word.dataset.exact = weight;
      word.dataset.weight = weight >= 0.02 ? number(weights[i]) : "";
      word.style.setProperty("--weight", weight || 0);
    }
    if (word.classList.contains("on") !== (i === chosen)) {
      word.classList.toggle("on", i === chosen);
      word.setAttribute("aria-selected", String(i === chosen));
    }
  });
}

function readout(query, key) {
  const { queries, keys } = state.map;
  if (query === null && key === null) return ["Point at a token or a cell to trace it; click or press Enter to keep it."];
  if (query !== null && key !== null) {
    return [...quoted(queries[query]), " looks at ", ...quoted(keys[key]), " ", make("b", number(rowOf(query)[key]))];
  }
  const [word, weights, others, verb] = query !== null
    ? [queries[query], rowOf(query), keys, " looks most at "]
    : [keys[key], columnOf(key), queries, " is looked at most by "];
  const best = strongest(weights, 3).flatMap((i, n) => [n ? ", " : "", ...quoted(others[i]), " ", make("b", number(weights[i]))]);
  return [...quoted(word), verb, ...(best.length ? best : ["nothing"])];
}

// ── Pointer and keyboard ─────────────────────────────────────────────────────

function cellUnder(event) {
  const box = $("cells").getBoundingClientRect(), { queries, keys } = state.map;
  return [
    clamp(Math.floor((event.clientY - box.top) / pitch), 0, queries.length - 1),
    clamp(Math.floor((event.clientX - box.left) / pitch), 0, keys.length - 1),
  ];
}

function wordUnder(event) {
  const word = event.target.closest("[data-side]"), at = Number(word?.dataset.place);
  return word ? (word.dataset.side === "query" ? [at, null] : [null, at]) : null;
}

function moveInMatrix(event) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step) return;
  event.preventDefault();
  const { queries, keys } = state.map, fresh = state.query === null || state.key === null;
  const query = clamp((state.query ?? 0) + (fresh ? 0 : step[0]), 0, queries.length - 1);
  const key = clamp((state.key ?? 0) + (fresh ? 0 : step[1]), 0, keys.length - 1);
  follow(query, key);
  $("cursor").scrollIntoView({ block: "nearest", inline: "nearest" });
}

function moveInWords(event) {
  const word = event.target.closest("[data-side]"), list = word?.parentElement;
  const step = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: 0, ArrowRight: 0 }[event.key];
  if (!word || step === undefined) return;
  event.preventDefault();
  const across = event.key === "ArrowLeft" ? $("lookers") : event.key === "ArrowRight" ? $("looked") : list;
  const next = across.children[clamp(Number(word.dataset.place) + step, 0, across.children.length - 1)];
  // Only one word of each list is a tab stop: the one visited last.
  for (const other of across.children) other.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function listen() {
  const cells = $("cells"), lines = $("lines");
  cells.addEventListener("pointermove", (event) => hover(...cellUnder(event)));
  cells.addEventListener("click", (event) => pin(...cellUnder(event)));
  cells.addEventListener("keydown", moveInMatrix);
  for (const [side, list] of [["query", $("rows")], ["key", $("columns")]]) {
    const at = (event) => [...list.children].indexOf(event.target);
    const pair = (i) => (side === "query" ? [i, null] : [null, i]);
    list.addEventListener("pointerover", (event) => at(event) >= 0 && hover(...pair(at(event))));
    list.addEventListener("click", (event) => at(event) >= 0 && pin(...pair(at(event))));
  }
  lines.addEventListener("pointerover", (event) => wordUnder(event) && hover(...wordUnder(event)));
  lines.addEventListener("click", (event) => wordUnder(event) && pin(...wordUnder(event)));
  lines.addEventListener("keydown", moveInWords);
  lines.addEventListener("focusin", (event) => {
    if (event.target.matches(".words :focus-visible")) follow(...wordUnder(event));
  });
  for (const area of [$("matrix"), lines]) {
    area.addEventListener("pointerleave", () => hover(null, null));
    area.addEventListener("focusout", () => hover(null, null));
    area.addEventListener("keydown", (event) => event.key === "Enter" && pin(state.query, state.key));
  }
  $("atlas").addEventListener("keydown", moveInAtlas);
  $("in-words").addEventListener("toggle", () => $("in-words").open && writeInWords());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") release();
    // With nothing focused, left and right still leaf through the heads; up and down stay with scrolling.
    if (document.activeElement === document.body && /^Arrow(Left|Right)$/.test(event.key)) moveInAtlas(event);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let width = innerWidth;
  addEventListener("resize", () => {
    // Phones report a resize whenever their address bar slides away; only the width changes the layout.
    if (innerWidth !== width) requestAnimationFrame(redraw);
    width = innerWidth;
  });
}

function redraw() {
  readRamp();
  paintScale();
  const { map, head } = state;
  buildAtlas(layersOf(map.name));
  openHead(map, head);
}

function start() {
  if (!("DecompressionStream" in window)) {
    $("notice").textContent = "This page needs a browser from 2023 or later to unpack its weights.";
    $("notice").hidden = false;
    return;
  }
  $("main").hidden = false;
  $("sentences").classList.toggle("long", $("sentences").textContent.length > 240);
  for (const weight of [0, 0.1, 0.25, 0.5, 1]) {
    const tick = make("span", String(weight));
    tick.style.left = `${100 * Math.sqrt(weight)}%`;
    $("ticks").append(tick);
  }
  readRamp();
  paintScale();
  buildKinds();
  listen();
  const map = page.opened ? maps[page.opened.map] : undefined;
  const first = map?.name ?? (kinds.includes("cross") ? "cross" : kinds[0]);
  $("kinds").querySelectorAll("input")[kinds.indexOf(first)].checked = true;
  openKind(first, map, page.opened?.head ?? undefined);
}

start();
