// The replay bar by itself: what the tests of the core mount.

import { mount } from "./core_solo.js";

function render({ model, el: host }) {
  return mount({ model, el: host, title: "Recorded steps", views: [], withBar: true });
}

export default { render };
