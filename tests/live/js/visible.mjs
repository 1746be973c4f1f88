// Reads a list of texts and writes each as the views show it.

import { readFileSync } from "node:fs";
import { visibleLine } from "../../../widgets/yaie_widgets/live/js/core_format.js";

process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(visibleLine)));
