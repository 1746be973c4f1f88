// A large pool as one picture of small squares without gaps, read block by block through a lens.

import { el, setAttr } from "./core_dom.js";
import { count } from "./core_format.js";
import { mapCell, paintMapCell, spokenCell } from "./blocks_cell.js";
import { eventsOf, gridShape, STATES } from "./blocks_model.js";

const NUMBERS = 40;
const NUMBER_HIGH = 10;
const INKS = [...STATES, "bg", "ink", "ink2", "lost", "swapped"];
const LENS_COLUMNS = 15;
const LENS_ROWS = 9;

export function blockCanvas() {
  const canvas = el("canvas", { class: "y-map-canvas", "aria-hidden": "true" });
  const id = "y-map-" + Math.random().toString(36).slice(2);
  const spoken = el("span", { class: "y-map-spoken", role: "gridcell", id });
  const row = el("div", { role: "row" }, spoken);
  const attributes = { class: "y-map-picture", role: "grid", tabindex: "0", "aria-label": "Physical KV blocks" };
  const node = el("div", attributes, canvas, row);
  setAttr(node, "aria-activedescendant", spoken.id);
  const inks = INKS.map((name) => el("i", { class: "y-map-ink", style: { color: "var(--y-" + name + ")" } }));
  node.append(...inks);
  const lens = blockLens();
  let shape = { columns: 1, size: 3 };
  let model = null;
  let at = 0;
  return {
    node,
    lens,
    get columns() {
      return shape.columns;
    },
    get at() {
      return at;
    },
    paint(newModel, look, width) {
      model = newModel;
      shape = gridShape(model.cells.length, width - NUMBERS);
      drawPool(canvas, model, look, shape, inksOf(inks));
      setAttr(node, "aria-rowcount", Math.ceil(model.cells.length / shape.columns));
      setAttr(node, "aria-colcount", shape.columns);
    },
    idAt(event) {
      const box = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left - NUMBERS) / shape.size);
      const id = Math.floor((event.clientY - box.top) / shape.size) * shape.columns + column;
      return column >= 0 && column < shape.columns && id >= 0 && model && id < model.cells.length ? id : null;
    },
    focus(id) {
      at = id;
      node.focus({ preventScroll: true });
      const top = Math.floor(id / shape.columns) * shape.size;
      node.scrollTop = Math.max(top + shape.size - node.clientHeight, Math.min(node.scrollTop, top));
    },
    // The block that is read: spoken, and framed in the lens.
    point(id, look) {
      if (id === null) return;
      at = id;
      const cell = model.cells[id];
      spoken.setAttribute("aria-label", spokenCell(cell, eventsOf(model, cell)));
      lens.paint(model, look, shape.columns, id);
    },
    rectOf(id) {
      const box = canvas.getBoundingClientRect();
      const left = box.left + NUMBERS + (id % shape.columns) * shape.size;
      return new DOMRect(left, box.top + Math.floor(id / shape.columns) * shape.size, shape.size, shape.size);
    }
  };
}

function inksOf(probes) {
  return Object.fromEntries(INKS.map((name, i) => [name, getComputedStyle(probes[i]).color]));
}

function drawPool(canvas, model, look, shape, inks) {
  const { columns, size } = shape;
  const rows = Math.ceil(model.cells.length / columns);
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [NUMBERS + columns * size, rows * size];
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.fillStyle = inks.bg;
  pen.fillRect(0, 0, width, height);
  drawNumbers(pen, rows, shape, inks, canvas);
  pen.translate(NUMBERS, 0);
  const spots = [];
  for (let row = 0; row < rows; row++) drawRow(pen, model, look, shape, inks, row, spots);
  for (const [event, x, y] of spots) drawEvent(pen, event, x, y, size, inks);
}

function drawNumbers(pen, rows, { columns, size }, inks, canvas) {
  pen.fillStyle = inks.ink2;
  pen.font = "10px " + getComputedStyle(canvas).fontFamily;
  pen.textAlign = "right";
  pen.textBaseline = "top";
  const every = Math.ceil(30 / size);
  // A number that does not fit above the lower edge would be cut.
  for (let row = 0; row * size + NUMBER_HIGH <= rows * size; row += every) {
    pen.fillText(count(row * columns), NUMBERS - 6, row * size);
  }
}

// Neighbours that look alike are one rectangle.
function drawRow(pen, model, look, { columns, size }, inks, row, spots) {
  const end = Math.min((row + 1) * columns, model.cells.length);
  let from = row * columns;
  while (from < end) {
    const state = model.cells[from].state;
    const stands = look.stands(model.cells[from]);
    let to = from;
    while (to < end && model.cells[to].state === state && look.stands(model.cells[to]) === stands) to++;
    const [x, y] = [(from % columns) * size, row * size];
    if (state !== "free" && stands) {
      pen.fillStyle = inks[state];
      pen.fillRect(x, y, (to - from) * size, size);
    } else {
      drawDots(pen, x, y, to - from, size, inks[state]);
    }
    from = to;
  }
  for (let id = row * columns; id < end; id++) {
    const event = eventsOf(model, model.cells[id]).pop();
    if (event && look.stands(model.cells[id])) spots.push([event, (id % columns) * size, row * size]);
  }
}

// Free is paper with a dot; what does not stand out keeps its colour in the dot.
function drawDots(pen, x, y, length, size, ink) {
  const dot = Math.max(1, Math.floor(size / 3));
  const inset = Math.floor((size - dot) / 2);
  pen.fillStyle = ink;
  for (let i = 0; i < length; i++) pen.fillRect(x + i * size + inset, y + inset, dot, dot);
}

function drawEvent(pen, event, x, y, size, inks) {
  if (event === "evicted" || event === "swapped") {
    pen.fillStyle = inks.bg;
    pen.fillRect(x, y, size, size);
    pen.strokeStyle = event === "evicted" ? inks.lost : inks.swapped;
    pen.lineWidth = 1.2;
    pen.beginPath();
    pen.moveTo(x + 0.3, y + 0.3);
    pen.lineTo(x + size - 0.3, y + size - 0.3);
    if (event === "evicted") pen.moveTo(x + size - 0.3, y + 0.3), pen.lineTo(x + 0.3, y + size - 0.3);
    pen.stroke();
    return;
  }
  pen.strokeStyle = inks.ink;
  pen.lineWidth = 1;
  pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
}

// 15 x 9 blocks around one, with the marks of the small map.
function blockLens() {
  const cells = [];
  const node = el("div", { class: "y-map-lens", "aria-hidden": "true" });
  for (let i = 0; i < LENS_COLUMNS * LENS_ROWS; i++) {
    cells.push(mapCell());
    node.append(cells[i].node);
  }
  return { node, paint: (model, look, columns, id) => paintLens(cells, model, look, columns, id) };
}

function paintLens(cells, model, look, columns, id) {
  const rows = Math.ceil(model.cells.length / columns);
  const left = lensStart(id % columns, LENS_COLUMNS, columns);
  const top = lensStart(Math.floor(id / columns), LENS_ROWS, rows);
  cells.forEach((made, i) => {
    const column = left + (i % LENS_COLUMNS);
    const at = (top + Math.floor(i / LENS_COLUMNS)) * columns + column;
    const cell = column < columns ? model.cells[at] : undefined;
    made.node.style.visibility = cell ? "" : "hidden";
    if (cell) paintMapCell(made, model, cell, { ...look, labels: true });
    made.node.classList.toggle("on", at === id);
  });
}

// Where a window of a length begins so that it shows a place, in its middle if it can.
export function lensStart(place, length, total) {
  return Math.max(0, Math.min(place - Math.floor(length / 2), total - length));
}
