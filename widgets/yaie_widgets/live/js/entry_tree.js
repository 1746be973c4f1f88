// The radix tree of `%yaie tree --live`.

import { solo } from "./core_solo.js";
import { createTree } from "./tree.js";

function render({ model, el: host }) {
  return solo({ model, el: host, title: "Radix tree", view: createTree, withBar: true });
}

export default { render };
