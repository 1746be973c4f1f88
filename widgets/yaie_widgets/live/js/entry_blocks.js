// The block map of `%yaie blocks --live`.

import { solo } from "./core_solo.js";
import { createBlocks } from "./blocks.js";

function render({ model, el: host }) {
  return solo({ model, el: host, title: "KV blocks", view: createBlocks, withBar: true });
}

export default { render };
