// The strips of the dashboard: one axis of steps, events above it, values at the cursor beside it.
import { LEFT, RIGHT } from "./core_axis.js";
import { clear, el, setAttr, setText, svg } from "./core_dom.js";
import { count, counted } from "./core_format.js";
import { STRIP_HIGH, eventMarks, groupedSteps, linePath, slotsFor, stackPaths, stripFloor } from "./dashboard_paths.js";
import { STRIPS } from "./dashboard_strips.js";

const RAIL = 13;
const FIRST = 30;
const TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
const TICK_ROOM = 52;

export function dashboardPlot() {
  const bottom = stripFloor(STRIPS.length - 1, FIRST);
  const grid = svg("g", { class: "y-dash-grid" });
  const events = svg("g");
  const strips = STRIPS.map((strip, place) => stripNodes(strip, stripFloor(place, FIRST)));
  const cursor = svg("line", { class: "y-dash-cursor", y1: 4, y2: bottom });
  const chart = svg("svg", { class: "y-dash-chart", height: bottom + 22, role: "img" },
    svg("text", { x: 12, y: RAIL + 4 }, "Events"), svg("text", { x: 12, y: bottom + 16 }, "Step"),
    grid, strips.map(strip => strip.node), events, cursor, strips.map(strip => strip.over));
  const node = el("div", { class: "y-dash-plot", role: "slider", tabindex: 0, "aria-label": "Step" }, chart);

  // The axis for a width: where places are, and which place is at x.
  function axis(scene) {
    const width = Math.max(1, node.clientWidth - LEFT - RIGHT);
    const slots = slotsFor(scene.shown.length);
    const slot = width / slots;
    const placeAt = x => Math.max(0, Math.min(scene.shown.length - 1, Math.floor((x - LEFT) / slot)));
    return { width, slots, slot, placeAt };
  }

  // Gives back whether some bar has a gap that the legend must explain.
  function draw(scene) {
    const { width, slots, slot } = axis(scene);
    setAttr(chart, "width", node.clientWidth);
    drawGrid(scene.shown, slot);
    drawEvents(scene.shown, slot);
    const groups = groupedSteps(scene.shown, slots, width);
    const column = slot * Math.max(1, Math.ceil(slots / width));
    strips.forEach((nodes, place) => {
      drawStrip(STRIPS[place], nodes, scene, groups, column, stripFloor(place, FIRST), width);
    });
    return strips.some(nodes => nodes.least.hasAttribute("d"));
  }

  function drawStrip(strip, nodes, scene, groups, column, floor, width) {
    const top = strip.top(scene);
    const place = { left: LEFT, column, floor, top, story: scene.story };
    setAttr(nodes.floor, "d", `M${LEFT} ${floor + 0.5}h${width}`);
    setAttr(nodes.limit, "d", strip.limit ? `M${LEFT} ${floor - STRIP_HIGH + 0.5}h${width}` : null);
    setText(nodes.edge, strip.edge(scene));
    if (strip.parts[0][2] === "bar") {
      const { paths, least, cut } = stackPaths(strip, groups, place);
      paths.forEach((path, at) => setAttr(nodes.paths[at], "d", path || null));
      setAttr(nodes.least, "d", least + cut || null);
    } else {
      const drawn = strip.parts.map(part => linePath(part[3], groups, place));
      drawn.forEach(({ path }, at) => setAttr(nodes.paths[at], "d", path || null));
      setAttr(nodes.least, "d", drawn.map(({ cut }) => cut).join("") || null);
    }
  }

  function drawGrid(shown, slot) {
    const every = TICKS.find(tick => tick * slot >= TICK_ROOM) ?? 2000;
    clear(grid);
    shown.forEach((one, place) => {
      if (one.step % every && shown.length > 1) return;
      const x = Math.round(LEFT + (place + 0.5) * slot) + 0.5;
      grid.append(svg("line", { x1: x, x2: x, y1: FIRST - 6, y2: bottom }));
      grid.append(svg("text", { x, y: bottom + 16, "text-anchor": "middle" }, count(one.step)));
    });
  }

  function drawEvents(shown, slot) {
    clear(events);
    for (const { x, from, to, preempted, swapped, evicted } of eventMarks(shown, LEFT, slot)) {
      const words = [];
      const way = preempted ? "preempted" : swapped ? "swapped" : null;
      if (preempted) words.push(counted(preempted, "request") + " preempted");
      if (swapped) words.push(counted(swapped, "request") + " swapped");
      if (evicted) words.push(counted(evicted, "block") + " evicted");
      const where = from === to ? "step " + count(from) : "steps " + count(from) + " to " + count(to);
      const title = svg("title", {}, where + ": " + words.join(", "));
      if (way) events.append(svg("path", { class: "y-dash-lost " + way, d: `M${Math.round(x) + 0.5} 21V${bottom}` }));
      const cross = svg("path", { class: "y-dash-evicted", d: `M${x - 3} ${RAIL - 3}l6 6m-6 0l6-6` });
      events.append(svg("g", {}, title, way ? lostMark(x - 5, RAIL - 4, way) : cross));
    }
  }

  function point(scene, place) {
    const { slot } = axis(scene);
    const x = Math.round(LEFT + (place + 0.5) * slot) + 0.5;
    const one = scene.shown[place];
    for (const name of ["x1", "x2"]) setAttr(cursor, name, x);
    const said = ["step " + count(one.step)];
    strips.forEach((nodes, at) => {
      const [value, more] = STRIPS[at].words(scene, one);
      setText(nodes.value, value);
      setText(nodes.more, more);
      for (const text of [nodes.value, nodes.more]) setAttr(text, "x", node.clientWidth - 12);
      said.push(STRIPS[at].title.toLowerCase() + " " + [value, more].filter(Boolean).join(", "));
    });
    setAttr(node, "aria-valuemin", scene.shown[0].step);
    setAttr(node, "aria-valuemax", scene.shown.at(-1).step);
    setAttr(node, "aria-valuenow", one.step);
    setAttr(node, "aria-valuetext", said.join("; "));
    const steps = count(scene.shown[0].step) + " to " + count(scene.shown.at(-1).step);
    setAttr(chart, "aria-label", "Engine, steps " + steps + ". At " + said.join("; ") + ".");
  }

  return { node, axis, draw, point };
}

function stripNodes(strip, floor) {
  const text = (x, y, words, style) => svg("text", { x, y, class: style }, words);
  const paths = strip.parts.map(part => svg("path", { class: `y-dash-${part[2]} y-dash-${part[1]}` }));
  const least = svg("path", { class: "y-dash-least" });
  const floorLine = svg("path", { class: "y-dash-floor" });
  const limit = svg("path", { class: "y-dash-limit" });
  const edge = text(LEFT, floor - STRIP_HIGH - 3, "", "y-dash-edge");
  const value = svg("text", { y: floor - 24, "text-anchor": "end", class: "y-dash-value" });
  const more = svg("text", { y: floor - 9, "text-anchor": "end", class: "y-dash-small" });
  const name = text(12, floor - 24, strip.title, "y-dash-name");
  const node = svg("g", {}, name, stripLegend(strip, floor - 9), floorLine, limit, paths, least);
  return { node, over: svg("g", {}, edge, value, more), paths, least, floor: floorLine, limit, edge, value, more };
}

// Marks and words of the parts, each after the one before: words are measured by the browser.
function stripLegend(strip, baseline) {
  const line = svg("text", { x: 12, y: baseline, class: "y-dash-legend-line" });
  strip.parts.forEach(([word, role, look], at) => {
    const glyph = { bar: role === "decode" ? "▬" : "■", line: "━", dots: "┅" }[look];
    const key = svg("tspan", { class: "y-dash-" + role, dx: at ? 5 : null }, glyph);
    line.append(key, svg("tspan", { dx: 2 }, word));
  });
  return line;
}

// Slanted strokes in a frame: they rise where a place was lost, and fall where it went to the host.
export function lostMark(x, y, way) {
  const strokes = way === "swapped" ? "M9 5L5 1M7 7.5L1 1M3 7.5L.5 5" : "M1 5l4-4M3 7.5l6-6.5M7 7.5l2.5-2.5";
  return svg("g", { transform: `translate(${x} ${y})`, class: way },
    svg("rect", { class: "y-dash-frame", x: 0.5, y: 0.5, width: 9, height: 7 }),
    svg("path", { class: "y-dash-strokes", d: strokes }));
}
