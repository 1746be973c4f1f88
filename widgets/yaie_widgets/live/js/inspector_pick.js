// Which token the panel tells of: under the pointer, picked, or the one that was least to be expected.

import { endOf } from "./inspector_answer.js";

// answer() gives what is shown; changed() is called after every change.
export function createPick(answer, changed) {
  let picked = null;
  let pinned = false;
  let hovered = null;
  return {
    get pinned() {
      return pinned;
    },
    shown() {
      const last = endOf(answer()) - 1;
      for (const at of pinned ? [picked] : [hovered, picked]) if (at !== null && at <= last) return at;
      const first = answer().prompt.length;
      return answer().least ?? (first <= last ? first : last >= 0 ? last : null);
    },
    hover(at) {
      if (at === hovered) return;
      hovered = at;
      changed();
    },
    // The same token once more lets go of it.
    select(at, clicked) {
      pinned = clicked && !(pinned && picked === at);
      picked = at;
      changed();
    },
    clear() {
      picked = hovered = null;
      pinned = false;
    },
  };
}
