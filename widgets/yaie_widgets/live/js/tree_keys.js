// Keys of the tree: arrows as in any ARIA tree, "/" to the search, Escape back to nothing chosen.

export function treeKeys(event, { ctx, parts, state, update, focusRow, toggle, press }) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target === parts.find;
  if (event.key === "Escape") return treeEscape(event, ctx, parts, state, update, focusRow);
  if (event.target === parts.pick.node || (typing && event.key !== "ArrowDown")) return;
  const place = state.rows.findIndex((row) => row.key === state.at);
  const row = state.rows[place];
  if (event.key === "/") parts.find.focus();
  else if (!row) return;
  else if (typing) focusRow(row);
  else if (event.key === "Enter" || event.key === " ") press(row);
  else if (event.key === "ArrowRight" && row.open === false) toggle(row, true);
  else if (event.key === "ArrowLeft" && row.open) toggle(row, false);
  else {
    const target = state.rows[treeTarget(event.key, state.rows, place)];
    if (!target) return;
    focusRow(target);
  }
  event.preventDefault();
  event.stopPropagation();
}

// The place of the row that a key leads to; the same place at an end, -1 for any other key.
export function treeTarget(key, rows, place) {
  const last = rows.length - 1;
  if (key === "ArrowDown") return Math.min(place + 1, last);
  if (key === "ArrowUp") return Math.max(place - 1, 0);
  if (key === "Home") return 0;
  if (key === "End") return last;
  if (key === "ArrowRight") return rows[place].open ? Math.min(place + 1, last) : place;
  if (key !== "ArrowLeft") return -1;
  for (let at = place - 1; at >= 0; at--) if (rows[at].level < rows[place].level) return at;
  return place;
}

// First the search goes, then the selection.
function treeEscape(event, ctx, parts, state, update, focusRow) {
  event.preventDefault();
  event.stopPropagation();
  if (state.query) {
    parts.find.value = state.query = "";
    update();
  } else {
    for (const kind of ["node", "request", "block"]) if (ctx.selection[kind] !== null) ctx.select(kind, null);
  }
  const row = state.rows.find((one) => one.key === state.at);
  if (event.target === parts.find && row) focusRow(row);
}
