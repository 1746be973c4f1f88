// The widget LiveGeneration.

import { generationLink, showGeneration } from "./generation.js";

export default {
  initialize: ({ model }) => {
    generationLink(model);
  },
  render: ({ model, el }) => showGeneration(model, el),
};
