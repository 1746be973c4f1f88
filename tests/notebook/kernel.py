"""A Jupyter kernel driven without a browser: run cells, interrupt them, read every message they caused."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.manager import start_new_kernel


@dataclass
class Cell:
    """What one executed cell sent. `displays` holds the last content of each display."""

    code: str
    msg_id: str
    started: float
    finished: float = 0.0
    status: str = ""
    stdout: str = ""
    stderr: str = ""
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    displays: list[dict[str, Any]] = field(default_factory=list)
    display_ids: list[str] = field(default_factory=list)
    updates: int = 0
    shown: list[str] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)
    streamed: str = ""

    @property
    def out(self) -> str:
        """The text of `Out[n]`."""
        return self.result["text/plain"] if self.result else ""

    @property
    def text(self) -> str:
        """All plain text the cell shows."""
        return "\n".join([self.stdout, *(data.get("text/plain", "") for data in self.displays), self.out])


class Kernel:
    """One kernel with an interpreter state that survives from cell to cell."""

    def __init__(self, **environment: str) -> None:
        # One thread: small models gain nothing from more, and tests share the machine.
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1", **environment}
        self.manager, self.client = start_new_kernel(kernel_name="python3", env=env, startup_timeout=60)
        self.cells: dict[str, Cell] = {}
        self.widgets: dict[str, Cell] = {}
        self.first_load: Cell | None = None

    def send(self, code: str) -> Cell:
        """Queue a cell."""
        msg_id = self.client.execute(code)
        self.cells[msg_id] = cell = Cell(code, msg_id, time.monotonic())
        return cell

    def run(self, code: str, timeout: float = 60) -> Cell:
        """Run a cell to its end."""
        return self.finish(self.send(code), timeout)

    def finish(self, cell: Cell, timeout: float = 60) -> Cell:
        """Read messages until this cell is idle."""
        deadline = time.monotonic() + timeout
        while not cell.finished:
            self._read(deadline - time.monotonic())
        self._reply(cell)
        return cell

    def until(self, cell: Cell, seen: Any, timeout: float = 30) -> None:
        """Read messages until `seen(cell)`."""
        deadline = time.monotonic() + timeout
        while not seen(cell):
            self._read(deadline - time.monotonic())

    def settle(self, seconds: float) -> None:
        """Read whatever comes within some time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                self._read(left)
            except (Empty, TimeoutError):
                return

    def interrupt(self) -> float:
        """Press the stop button; the time it was pressed."""
        self.manager.interrupt_kernel()
        return time.monotonic()

    def value(self, expression: str) -> Any:
        """The value of a Python expression that has a literal repr."""
        import ast

        cell = self.run(f"print(repr({expression}))")
        assert cell.error is None, cell.error
        return ast.literal_eval(cell.stdout.strip())

    def complete(self, code: str) -> list[str]:
        """What the Tab key offers at the end of `code`."""
        reply = self.client.complete(code, len(code), reply=True, timeout=30)
        return list(reply["content"]["matches"])

    def inspect(self, code: str) -> str:
        """What Shift-Tab shows."""
        reply = self.client.inspect(code, len(code), reply=True, timeout=30)
        return str(reply["content"]["data"].get("text/plain", ""))

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def _reply(self, cell: Cell) -> None:
        while True:
            reply = self.client.get_shell_msg(timeout=30)
            owner = self.cells.get(reply["parent_header"].get("msg_id"))
            if owner is not None:
                owner.status = reply["content"]["status"]
            if owner is cell:
                return

    def _read(self, timeout: float) -> None:
        if timeout <= 0:
            raise TimeoutError("the kernel sent nothing more")
        message = self.client.get_iopub_msg(timeout=timeout)
        cell = self.cells.get(message["parent_header"].get("msg_id"))
        if message["msg_type"] == "comm_msg":
            self._hear(message["content"])
        elif cell is not None:
            self._take(cell, message["msg_type"], message["content"])

    def _take(self, cell: Cell, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            setattr(cell, content["name"], getattr(cell, content["name"]) + content["text"])
        elif kind == "execute_result":
            cell.result = content["data"]
        elif kind == "error":
            cell.error = content
        elif kind == "display_data":
            cell.displays.append(content["data"])
            cell.shown.append(content["data"].get("text/plain", ""))
            cell.display_ids.append(content["transient"].get("display_id", ""))
        elif kind == "comm_open":
            self.widgets[content["comm_id"]] = cell
            rows = content["data"]["state"].get("snapshot", {}).get("rows", ())
            cell.streamed = "".join(row["text"] for row in rows)
        elif kind == "update_display_data":
            self._update(content["transient"]["display_id"], content["data"])
        elif kind == "status" and content["execution_state"] == "idle":
            cell.finished = time.monotonic()

    def _hear(self, content: dict[str, Any]) -> None:
        """What a widget is sent from whichever thread belongs to the cell that made it."""
        cell = self.widgets.get(content["comm_id"])
        said = content["data"].get("content") or {}
        if cell is None or content["data"].get("method") != "custom" or "seq" not in said:
            return
        cell.updates += 1
        cell.said.append(said)
        if said["kind"] == "rows":
            cell.streamed += "".join(added for _, _, added in said["rows"])
            cell.shown.append(cell.streamed)

    def _update(self, display_id: str, data: dict[str, Any]) -> None:
        for cell in self.cells.values():
            if display_id in cell.display_ids:
                cell.displays[cell.display_ids.index(display_id)] = data
                cell.updates += 1
                cell.shown.append(data.get("text/plain", ""))


def texts(cells: Iterable[Cell]) -> list[str]:
    """The text of each cell."""
    return [cell.text for cell in cells]
