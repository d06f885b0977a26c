#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MCP on stdio as a client sees it: from the start of `sandglass mcp` to the first result of a tool, with a private daemon and with
one that runs, and one call more on a connection that is warm. Prints a line of JSON for each row, in milliseconds.

    bench/mcp.py [build] [--starts N] [--calls N]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("build", nargs="?", default=pathlib.Path(__file__).parent.parent / "build", type=pathlib.Path)
parser.add_argument("--starts", type=int, default=15)
parser.add_argument("--calls", type=int, default=300)


class Client:
    """`sandglass mcp` as a child, with the handshake done."""

    def __init__(self, program, environment):
        self.process = subprocess.Popen([program, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.number = 0
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}})

    def ask(self, method, params=None):
        self.number += 1
        body = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params or {}}
        self.process.stdin.write(json.dumps(body).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == self.number and "result" in answer and not answer["result"].get("isError"), answer

    def call(self):
        self.ask("tools/call", {"name": "bash", "arguments": {"command": "true"}})

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def timed(action):
    begin = time.perf_counter()
    result = action()
    return (time.perf_counter() - begin) * 1000, result


def first_result(program, environment):
    def start():
        client = Client(program, environment)
        client.call()
        return client

    took, client = timed(start)
    client.close()
    return took


def report(name, values):
    values = sorted(values)
    print(json.dumps({"name": name, "count": len(values), "median_ms": round(statistics.median(values), 3),
                      "p90_ms": round(values[len(values) * 9 // 10], 3), "best_ms": round(values[0], 3)}), flush=True)


def main():
    options = parser.parse_args()
    program = options.build.resolve() / "sandglass"
    with tempfile.TemporaryDirectory(prefix="sgb-") as folder:
        os.chmod(folder, 0o711)
        alone = {**os.environ, "XDG_RUNTIME_DIR": folder, "SANDGLASS_CONFIG": ""}
        alone.pop("SANDGLASS_URL", None)
        report("first result, private daemon", [first_result(program, alone) for _ in range(options.starts)])

        url = f"unix:{folder}/run/sandglass.sock"
        config = pathlib.Path(folder) / "sandglass.yaml"
        config.write_text(json.dumps({"state_dir": f"{folder}/state", "shutdown": {"policy": "destroy"}, "log": {"level": "error"}}))
        daemon = subprocess.Popen([program, "serve", "--config", config, "--listen", url])
        try:
            shared = {**os.environ, "SANDGLASS_URL": url}
            while not os.path.exists(f"{folder}/run/sandglass.sock"):
                assert daemon.poll() is None
                time.sleep(0.01)
            report("first result, daemon runs", [first_result(program, shared) for _ in range(options.starts)])
            client = Client(program, shared)
            client.call()
            report("one call of bash, warm", [timed(client.call)[0] for _ in range(options.calls)])
            report("ping, warm", [timed(lambda: client.ask("ping"))[0] for _ in range(options.calls)])
            client.close()
        finally:
            daemon.terminate()
            daemon.wait()


main()
