"""Parts of the console that need no browser, in node: streams, TOML, servers, the busiest links."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest
from tests.interop.conftest import do_without
from tests.interop.test_console import builder

import weft
from weft.routing import ENGINES
from weft.serve.console.layout import draw

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
    """Return the output of a TypeScript script that imports from the page's sources."""
    esbuild = WEB / "node_modules" / "esbuild" / "bin" / "esbuild"
    if not esbuild.is_file():
        do_without("the console's packages (make web)")
    node = builder().find_node().node  # installed together with these packages
    path = os.pathsep.join([str(Path(node).parent), os.environ.get("PATH", "")])
    bundle = subprocess.run(
        [str(esbuild), "--bundle", "--format=esm", "--loader=ts", "--log-level=warning"],
        input=source, cwd=WEB / "src", env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    # Objects of a browser that the modules use when they are loaded.
    place = (
        "globalThis.location = { hash: '' }; globalThis.sessionStorage = { getItem: () => '' };"
        "globalThis.matchMedia = () => ({ matches: false });\n"
    )
    requests = [node, "--input-type=module"]
    return subprocess.run(requests, input=place + bundle, capture_output=True, text=True, check=True).stdout


def test_an_intent_is_written_as_toml_that_says_the_same() -> None:
    output = run(f'import {{ toToml }} from "./toml"; console.log(toToml({json.dumps(INTENT)}));')
    assert tomllib.loads(output) == INTENT


def test_events_are_read_however_the_stream_is_cut() -> None:
    text = 'event: state\ndata: {"t": 1,\ndata:  "ä": 2}\n\n: still here\n\n'
    text += "data: 3\r\n\r\nevent: log\ndata: 4\n\ndata: cut"
    output = run(f"""
      import {{ parser }} from "./stream";
      const text: string = {json.dumps(text)};
      for (let size = 1; size <= text.length; size++) {{
        const found: unknown[] = [];
        const parse = parser({{ event: (kind, data) => void found.push([kind, data]) }});
        for (let at = 0; at < text.length; at += size) parse(text.slice(at, at + size));
        console.log(JSON.stringify(found));
      }}""")
    expected = [["state", {"t": 1, "ä": 2}], ["message", 3], ["log", 4]]
    assert [json.loads(line) for line in output.splitlines()] == [expected] * len(text)


def test_a_stream_that_breaks_is_asked_for_again_and_one_that_is_refused_is_not() -> None:
    output = run("""
      import { Problem } from "./api";
      import { follow } from "./stream";
      const answers = [() => new Response('data: 1\\n\\n'), () => { throw new Problem(503, "away"); },
        () => { throw new Problem(401, "no token that is known"); }];
      const told: unknown[] = [];
      const note = (what: string) => (...more: unknown[]) => void told.push([what, ...more]);
      const listener = { event: note("event"), up: note("up"), down: note("down"), refused: note("refused") };
      await follow({ fetch: async () => answers.shift()!() } as never, "/live", listener, new AbortController().signal);
      console.log(JSON.stringify(told));""")
    assert json.loads(output) == [
        ["up"], ["event", "message", 1], ["down", "the service ended the stream"],
        ["down", "away"], ["refused", "no token that is known"],
    ]  # fmt: skip


def run_with_servers(script: str) -> object:
    """Run a script with `model`, of 12 servers with 8 adapters each; return what it assigns to `result`."""
    drawing = msgspec.json.encode(draw(weft.load("fat-tree:hosts=12,server=dgx-h100"))).decode()
    return json.loads(
        run(f"""
      import {{ Model }} from "./model";
      import {{ find }} from "./search";
      import {{ nextItem }} from "./picture/walk";
      const model = new Model({drawing});
      const names = (items) => items.map((item) => model.nameOf(item));
      let result;
      {script}
      console.log(JSON.stringify(result));""")
    )


def test_the_search_finds_a_server_as_one_item_and_its_adapters_by_a_slash() -> None:
    searches = "['dgx1', 'dgx12/', 'dgx3/mlx5_4/1', 'MLX5_9', 'nosuch'].map((text) => names(find(model, text)))"
    servers, adapters, port, everywhere, none = run_with_servers(f"result = {searches};")
    assert servers == ["dgx1", "dgx10", "dgx11", "dgx12"]
    assert len(adapters) == 8
    assert all(name.startswith("dgx12/") for name in adapters)
    assert port == ["dgx3/mlx5_4"]
    assert everywhere[:3] == ["dgx1/mlx5_9", "dgx2/mlx5_9", "dgx3/mlx5_9"]
    assert none == []


def test_ends_of_a_path_are_adapters() -> None:
    assert run_with_servers("result = names(find(model, 'dgx2', true));")[0] == "dgx2/mlx5_0"


def test_arrow_keys_move_between_servers_and_within_a_selected_one() -> None:
    result = run_with_servers("""
      const walk = (item, ...keys) => names(keys.map((key) => (item = nextItem(model, item, key))));
      const adapter = { kind: "node", node: model.index.get("dgx1/mlx5_0") };
      result = [walk(null, "down", "down", "down", "right", "left", "up"), walk(adapter, "right", "up")];""")
    assert result == [["spine1", "leaf1", "dgx2", "dgx3", "dgx2", "leaf1"], ["dgx1/mlx5_3", "leaf1"]]


def test_only_the_busiest_links_are_thick() -> None:
    """At most eight in a small fabric, else a twentieth; none if all links are equally busy."""
    output = run("""
      import { BUSIEST, penOf, theme } from "./colours";
      import { inkLinks } from "./picture/ink";
      const thick = (load: (number | null)[]) => {
        const links = { load, errors: load, wait: load, state: load.map(() => "up") };
        const store = { lit: [], measure: "load", isFresh: true, live: { links } };
        const steps = new Uint8Array(load.length);
        inkLinks(store as never, { links: load.length } as never, steps);
        return [...steps].flatMap((step, link) => (penOf(step, "load", theme())[1] > 1 ? [link] : []));
      };
      const idle = new Array(40).fill(0);
      console.log(JSON.stringify([
        thick([...idle, 0.2, 0.9, null]),
        thick(idle.map(() => 0.5)),
        thick([...idle, ...new Array(9).fill(0.9)]),
        thick([...new Array(400).fill(0.3), ...new Array(20).fill(0.9)]).length,
      ]));""")
    assert json.loads(output) == [[40, 41], [], [], 20]


def test_the_page_offers_every_routing_engine_in_a_model():
    (line,) = [
        line for line in (WEB / "src/panels/whatif.ts").read_text().splitlines() if line.startswith("const ENGINES")
    ]
    offered = json.loads(line.partition("= ")[2].removesuffix(";"))
    assert sorted(offered) == sorted(["", *(name for name in ENGINES if name != "auto")])
