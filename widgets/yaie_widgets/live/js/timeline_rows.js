// Names at the left and output at the right of the timeline's rows. Names are a list to choose a request from.
import { el, roving, setAttr, setText } from "./core_dom.js";
import { count, visibleLine } from "./core_format.js";
import { outputAt } from "./timeline_model.js";
import { rowWords } from "./timeline_words.js";

export function timelineRows(ctx) {
  const names = el("div", { class: "y-tl-names", role: "listbox", "aria-label": "Requests" });
  const outputs = el("div", { class: "y-tl-outputs", "aria-hidden": "true" });
  const focus = roving(names, ".y-tl-name");
  const press = event => {
    const name = event.target.closest(".y-tl-name");
    if (name) ctx.select("request", name.dataset.label);
  };
  names.addEventListener("click", press);
  names.addEventListener("keydown", event => {
    if (event.key !== "Enter" && event.key !== " ") return;
    press(event);
    event.preventDefault();
  });

  function update(view, scale, at, selected) {
    const shown = scale.mark ? view.rows : [];
    for (const [box, make] of [[names, newName], [outputs, newOutput]]) {
      while (box.children.length > shown.length) box.lastChild.remove();
      while (box.children.length < shown.length) box.append(make());
    }
    shown.forEach((row, index) => {
      const name = names.children[index];
      name.dataset.label = row.label;
      name.style.height = outputs.children[index].style.height = scale.row + "px";
      setText(name.firstChild, visibleLine(row.label));
      setText(name.lastChild, scale.row >= 16 ? visibleLine(row.text) : "");
      setAttr(name, "aria-selected", row.label === selected ? "true" : "false");
      setAttr(name, "title", rowWords(row));
      const output = outputAt(row, at);
      setText(outputs.children[index], output === null ? "" : count(output) + " tok");
    });
    for (const box of [names, outputs]) setAttr(box, "data-small", scale.row >= 16 ? null : "");
    focus.settle();
  }

  return { names, outputs, update };
}

function newName() {
  const parts = [el("span", { class: "y-tl-id" }), el("span", { class: "y-tl-text" })];
  return el("div", { class: "y-tl-name", role: "option", tabindex: -1 }, parts);
}

const newOutput = () => el("div", { class: "y-tl-output" });
