// Reads {recording, steps} from stdin and prints what tree and block map show after each of these steps.

import { readFileSync } from "node:fs";
import { createRun } from "../../../widgets/yaie_widgets/live/js/core_run.js";
import { blocksModel, cellMark, logicalOf, tokensOf } from "../../../widgets/yaie_widgets/live/js/blocks_model.js";
import { nodeState, treeModel } from "../../../widgets/yaie_widgets/live/js/tree_model.js";
import { requestPath } from "../../../widgets/yaie_widgets/live/js/tree_path.js";

const { recording, steps } = JSON.parse(readFileSync(0, "utf8"));
const run = createRun(recording);

function treeOf(step) {
  const model = treeModel(run.frameAt(step), run.frameAt(step - 1), run.step(step) ?? {});
  const nodes = [...model.nodes.values()].filter((node) => !node.gone);
  const alive = (id) => !model.nodes.get(id).gone;
  return {
    totals: model.totals,
    namespaces: model.namespaces,
    nodes: Object.fromEntries(nodes.map((node) => [node.id, nodeOf(node)])),
    below: Object.fromEntries([...model.below].map(([id, ids]) => [id, ids.filter(alive)])),
    gone: [...model.nodes.values()].filter((node) => node.gone).map((node) => [node.id, node.gone]),
    paths: Object.fromEntries(Object.keys(run.requests).map((label) => [label, requestPath(run, model, label, step).map((node) => node.id)]))
  };
}

function nodeOf(node) {
  const { start, tokens, blocks, holders, used, namespace, sum } = node;
  return { start, tokens, blocks, holders, used, namespace, sum, state: nodeState(node) };
}

function blocksOf(step) {
  const frame = run.frameAt(step);
  const model = blocksModel(run, frame, run.step(step) ?? {});
  const cells = model.cells.map((cell) => ({
    state: cell.state,
    holders: cell.holders,
    node: cell.node,
    used: cell.used,
    mark: cellMark(run, cell),
    logical: logicalOf(frame, cell, model.blockSize),
    tokens: cell.state === "free" ? [] : tokensOf(frame, cell, model.blockSize)
  }));
  return { counts: model.counts, cells };
}

console.log(JSON.stringify(steps.map((step) => ({ step, tree: treeOf(step), blocks: blocksOf(step) }))));
