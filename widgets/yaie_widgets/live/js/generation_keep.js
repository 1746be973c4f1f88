// The finished form in the notebook of a page that was loaded again: such a page has forgotten which output the kernel
// replaces at the end, so the page replaces it itself.

const WIDGET = "application/vnd.jupyter.widget-view+json";

// The outputs of one cell with the form in place of the widget, and without the text that stood in for it; null when
// the widget is not among them.
export function keptOutputs(outputs, key, form) {
  const isView = output => output.data?.[WIDGET]?.model_id === key;
  const isStandIn = output => [output.data?.["text/html"]].flat().join("").includes('data-yaie-twin="' + key + '"');
  if (!outputs.some(isView)) return null;
  return outputs
    .filter(output => !isStandIn(output))
    .map(output => (isView(output) ? { output_type: "display_data", metadata: {}, data: form } : output));
}

// Whether no output of the notebook is left with the widget; false in hosts that do not show their notebook to widgets.
export async function keepForm(model, form) {
  const key = model.get("key");
  try {
    const context = (await model.widget_manager.get_model(key)).widget_manager.context;
    await context.ready;
    const cells = context.model.cells;
    for (let index = 0; index < cells.length; index++) {
      const outputs = cells.get(index).outputs;
      const kept = outputs && keptOutputs(outputs.toJSON(), key, form);
      if (kept) outputs.fromJSON(kept);
    }
    return true;
  } catch {
    return false;
  }
}
