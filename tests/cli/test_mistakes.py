"""A usage error names the command, the argument, the rule and the usage."""

from __future__ import annotations

import pytest
from tests.cli.test_commands import weft


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("all_reduce_perf -b 8", "there is no command 'all_reduce_perf': `weft nccl all_reduce SPEC` predicts"),
        ("osu_bw star:2", "there is no command 'osu_bw': `weft osu osu_bw SPEC` predicts its output\n"),
        ("ibstat", "there is no command 'ibstat': use `weft diag ibstat`\n"),
        ("show dgx-h100", "dgx-h100 is a server, not a fabric; write star:hosts=2,server=dgx-h100\n"),
        (
            "catalog p5",
            "there is no entry in the catalog 'p5'\n  `weft catalog` lists them all. "
            "p5 is mentioned by EFA-4x100, efa-400.\n",
        ),
    ],
)
def test_a_name_of_another_tool_gets_the_weft_command(words, said):
    done = weft(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"weft: {said}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "degrade leaf2/6 1e-9",
            "degrade: unexpected argument '1e-9'; options that take a value: --ber, --flaps\n"
            "  Usage: weft degrade NAME [OPTIONS] (see --help)\n",
        ),
        (
            "show star:4 h1 h2 h3",
            "show: unexpected arguments 'h2', 'h3'\n  Usage: weft show SPEC [NAME] [OPTIONS] (see --help)\n",
        ),
        ("show", "show: SPEC is missing: a topology, `superpod:su=1`, or the path of a file\n  Usage: weft show SPEC"),
        ("degrade leaf2/6 --ber", "degrade: --ber needs a value\n"),
        ("degrade leaf2/6 --ber x", "degrade: --ber: 'x' is not a number\n"),
        ("sim star:4 --seed 1.5", "sim: --seed: '1.5' is not a whole number\n"),
        ("sim star:4 --sead 1", "sim: there is no option --sead. Did you mean --seed?\n"),
        ("show -z", "show: there is no option -z\n"),
        ("tenants plan a b", "tenants plan: unexpected argument 'b'; options that take a value: --lab, "),
        ("break leaf1/5 nolab", "break: unexpected argument 'nolab'; did you mean --lab nolab?\n"),
        ("scenario qos --nosuch", "scenario qos: there is no option --nosuch."),
        ("nccl all_reduce star:2 -G 4", "nccl: there is no option -G: CUDA graphs are not modelled"),
        ("osu latency star:2 -np 4", "osu: there is no option -np: use --servers and --ppn"),
        ("route star:2 --engine min-hop", "route: there is no option --engine: use --routing-engine\n"),
        ("route star:2 --without h1", "route: there is no option --without: use --fault\n"),
        ("train llama3-8b --compare ndr,hdr", "train: there is no option --compare: use --fabrics\n"),
        ("plan --ufm", "plan: there is no option --ufm: use --ufm-hosts\n"),
        ("sim star:2 --plot x.png", "sim: there is no option --plot: use --picture\n"),
        ("sim star:2 --by 2", "sim: there is no option --by: use --distance\n"),
        ("shwo", 'Unknown command "shwo". Did you mean "show"?'),
    ],
)
def test_a_usage_error_names_the_rule_and_the_usage(words, said):
    done = weft(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"weft: {said}")
    assert "--help" in done.stderr
    assert len(done.stderr.splitlines()) == 2
