// EngineDashboard.
import { solo } from "./core_solo.js";
import { createDashboard } from "./dashboard.js";

function render({ model, el: host }) {
  return solo({ model, el: host, title: "Engine", view: createDashboard });
}

export default { render };
