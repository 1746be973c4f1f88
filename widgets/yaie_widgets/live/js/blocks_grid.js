// The pool as a grid of squares in the page, for as many blocks as a page can hold well.

import { clear, el } from "./core_dom.js";
import { gridShape } from "./blocks_model.js";
import { mapCell, paintMapCell } from "./blocks_cell.js";

export function blockGrid() {
  const node = el("div", { class: "y-map-grid", role: "grid", "aria-label": "Physical KV blocks" });
  let cells = [];
  let shape = { columns: 0 };
  let at = 0;
  const build = (total, wanted) => {
    shape = wanted;
    clear(node);
    cells = [];
    node.classList.toggle("small", shape.size > 0);
    node.style.setProperty("--columns", shape.columns);
    for (let first = 0; first < total; first += shape.columns) {
      node.append(gridRow(cells, first, Math.min(first + shape.columns, total)));
    }
  };
  const moveTo = (id) => {
    if (cells[at]) cells[at].node.tabIndex = -1;
    at = id;
    cells[at].node.tabIndex = 0;
  };
  return {
    node,
    get columns() {
      return shape.columns;
    },
    paint(model, look, width) {
      const wanted = gridShape(model.cells.length, width);
      if (cells.length !== model.cells.length || wanted.columns !== shape.columns) {
        build(model.cells.length, wanted);
        if (cells.length) moveTo(Math.min(at, cells.length - 1));
      }
      const labelled = { ...look, labels: shape.size === 0 };
      model.cells.forEach((cell, i) => paintMapCell(cells[i], model, cell, labelled));
    },
    idAt(event) {
      const cell = event.target.closest("[data-id]");
      return cell ? Number(cell.dataset.id) : null;
    },
    focus(id) {
      moveTo(id);
      cells[id].node.focus({ preventScroll: false });
    },
    point(id) {
      for (const old of node.querySelectorAll(".on")) old.classList.remove("on");
      if (id !== null && cells[id]) cells[id].node.classList.add("on");
    },
    rectOf: (id) => cells[id].node.getBoundingClientRect(),
    get at() {
      return at;
    }
  };
}

function gridRow(cells, first, end) {
  const number = el("span", { class: "y-map-number", role: "rowheader" }, String(first));
  const row = el("div", { class: "y-map-row", role: "row" }, number);
  for (let id = first; id < end; id++) {
    const made = mapCell({ role: "gridcell", tabindex: "-1", dataset: { id: String(id) } });
    cells.push(made);
    row.append(made.node);
  }
  return row;
}
