// The block map of `%yaie blocks --live`.

import { attach } from "./core_link.js";
import { solo } from "./core_solo.js";
import { createBlocks } from "./blocks.js";

function render({ model, el: host }) {
  const view = (ctx) => createBlocks(ctx, attach(model).options);
  return solo({ model, el: host, title: "KV blocks", view, withBar: true });
}

export default { render };
