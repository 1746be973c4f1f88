// The token inspector of `%yaie inspect`.

import { attach } from "./core_link.js";
import { reduceAnswers } from "./inspector_answer.js";
import { showInspector } from "./inspector.js";

export default {
  initialize: ({ model }) => {
    attach(model, reduceAnswers);
  },
  render: ({ model, el: host }) => showInspector(model, attach(model, reduceAnswers), host),
};
