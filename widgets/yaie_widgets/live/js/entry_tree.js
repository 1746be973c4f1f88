// The radix tree of `%yaie tree --live`.

import { attach } from "./core_link.js";
import { solo } from "./core_solo.js";
import { createTree } from "./tree.js";

function render({ model, el: host }) {
  const view = (ctx) => createTree(ctx, attach(model).options);
  return solo({ model, el: host, title: "Radix tree", view, withBar: true });
}

export default { render };
