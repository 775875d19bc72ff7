"""Parts of the console that need no browser, in node: its reader of streams, its writer of TOML."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.interop.conftest import do_without
from tests.interop.test_console import builder

pytestmark = pytest.mark.interop
WEB = Path(__file__).parents[2] / "web"
INTENT = {
    "version": 1,
    "tenant": {
        "acme": {"hosts": ["h[1-2]", 'a "quoted" name'], "ipoib": True, "rate": 0.5},
        "two words": {"hosts": []},
    },
    "service": {"store": {"classes": {"bulk": 3}}},
}


def run(source: str) -> str:
    """What a script in TypeScript prints, which imports from the page's sources."""
    esbuild = WEB / "node_modules" / "esbuild" / "bin" / "esbuild"
    if not esbuild.is_file():
        do_without("the console's packages (make web)")
    node = builder().find_node().node  # who fetched them had one
    path = os.pathsep.join([str(Path(node).parent), os.environ.get("PATH", "")])
    bundle = subprocess.run(
        [str(esbuild), "--bundle", "--format=esm", "--loader=ts", "--log-level=warning"],
        input=source, cwd=WEB / "src", env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    # The page's own, of a browser; here nobody has a token.
    place = "globalThis.location = { hash: '' }; globalThis.sessionStorage = { getItem: () => '' };\n"
    asked = [node, "--input-type=module"]
    return subprocess.run(asked, input=place + bundle, capture_output=True, text=True, check=True).stdout


def test_an_intent_is_written_as_toml_that_says_the_same() -> None:
    said = run(f'import {{ toToml }} from "./toml"; console.log(toToml({json.dumps(INTENT)}));')
    assert tomllib.loads(said) == INTENT


def test_events_are_read_however_the_stream_is_cut() -> None:
    text = 'event: state\ndata: {"t": 1,\ndata:  "ä": 2}\n\n: still here\n\n'
    text += "data: 3\r\n\r\nevent: log\ndata: 4\n\ndata: cut"
    said = run(f"""
      import {{ parser }} from "./stream";
      const text: string = {json.dumps(text)};
      for (let size = 1; size <= text.length; size++) {{
        const found: unknown[] = [];
        const parse = parser({{ event: (kind, data) => void found.push([kind, data]) }});
        for (let at = 0; at < text.length; at += size) parse(text.slice(at, at + size));
        console.log(JSON.stringify(found));
      }}""")
    expected = [["state", {"t": 1, "ä": 2}], ["message", 3], ["log", 4]]
    assert [json.loads(line) for line in said.splitlines()] == [expected] * len(text)


def test_a_stream_that_breaks_is_asked_for_again_and_one_that_is_refused_is_not() -> None:
    said = run("""
      import { Problem } from "./api";
      import { follow } from "./stream";
      const answers = [() => new Response('data: 1\\n\\n'), () => { throw new Problem(503, "away"); },
        () => { throw new Problem(401, "no token that is known"); }];
      const told: unknown[] = [];
      const note = (what: string) => (...more: unknown[]) => void told.push([what, ...more]);
      const listener = { event: note("event"), up: note("up"), down: note("down"), refused: note("refused") };
      await follow({ fetch: async () => answers.shift()!() } as never, "/live", listener, new AbortController().signal);
      console.log(JSON.stringify(told));""")
    assert json.loads(said) == [
        ["up"], ["event", "message", 1], ["down", "the service ended the stream"],
        ["down", "away"], ["refused", "no token that is known"],
    ]  # fmt: skip
